//! Compares counts with those of `bpe-openai`, whose vocabulary is the one of the crate.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use proptest::prelude::*;
use rung_tokens::count_tokens;

#[track_caller]
fn assert_same_count(text: &str) {
    let excerpt: String = text.chars().take(200).collect();
    assert_eq!(
        count_tokens(text),
        bpe_openai::o200k_base().count(text),
        "{excerpt:?}"
    );
}

const TEXTS: &[&str] = &[
    "",
    "a",
    " ",
    "The quick brown fox jumps over the lazy dog. It didn't stop, and they'll never know why we've asked.",
    "fn main() {\n    let x: Vec<u32> = (0..10).map(|n| n * 2).collect();\n\tprintln!(\"{x:?}\");\n}\n",
    "def __init__(self, *args, **kwargs):\n    super().__init__(*args, **kwargs)  # comment\n\n\n",
    "SELECT id, COUNT(*) FROM \"records\" WHERE created_at >= '2024-01-01' GROUP BY 1 HAVING COUNT(*) > 10;",
    r#"{"jsonrpc":"2.0","id":17,"result":{"content":[{"type":"text","text":"a\nb\\u00e9"}],"isError":false,"n":-1.5e10}}"#,
    "<html>\r\n  <body class=\"x\">\r\n    <!-- &nbsp; -->\r\n  </body>\r\n</html>\r\n",
    "Die Straße zum Fußballplatz führt über Donaudampfschifffahrtsgesellschaftskapitänsmützen.",
    "Η γρήγορη καφέ αλεπού πηδάει πάνω από το τεμπέλικο σκυλί. ΑΒΓΔ",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. ЩУКА",
    "مرحبا بالعالم، هذا نصٌّ عربيٌّ مُشَكَّل ١٢٣٤٥٦",
    "नमस्ते दुनिया, यह हिन्दी पाठ है। १२३ क्षत्रिय",
    "敏捷的棕色狐狸跳过了懒狗。中文没有空格，所以一个片段可以很长。",
    "いろはにほへと、カタカナとひらがなと漢字。ｶﾀｶﾅ",
    "다람쥐 헌 쳇바퀴에 타고파. 한국어 문장입니다.",
    "ภาษาไทยไม่มีช่องว่างระหว่างคำ",
    "שלום עולם עם נִקּוּד",
    "Tiếng Việt có rất nhiều dấu: ắ ằ ẳ ẵ ặ",
    "👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 🇩🇪🇫🇷 ❤️ 🤷🏻‍♀️",
    "e\u{301}a\u{300}\u{323}o\u{308} Z\u{351}\u{36b}a\u{300}\u{301}\u{302}\u{303}lgo",
    " \u{301}x \u{301} 1\u{301}\u{301}",
    "a b  c   d    e     f",
    "\t\ta\t\tb\n\n\n\nc\r\n\r\n\r\nd \r\n e\r\rf \n \n ",
    "\u{a0}x\u{2003}y\u{3000}z\u{2028}w\u{2029}\u{85}v\u{b}\u{c}u\u{1680}\u{feff}t",
    "   ",
    "\n",
    "  \n  ",
    "end with spaces   ",
    "end with lines \r\n\r\n",
    "1 12 123 1234 12345 3.14159 1,000,000 ½ ² Ⅷ ٣٤٥٦ 2024-12-31T23:59:59.999Z",
    "\0\u{1}\u{2}\u{7f}\u{80}\u{9f}\u{1b}[31mred\u{1b}[0m",
    "it's IT'S it'S I'll I'LL we're WE'RE you've YOU'VE I'm I'M he'd HE'D don't DON'T it'ſ 's 'll '' 'x l'll'll",
    "camelCaseIdentifier PascalCaseIdentifier SCREAMING_SNAKE_CASE XMLHttpRequest iPhone ABCdefGHI",
    "ǅungla ǅ ǅǅ ʰa ʰA Aʰ AʰA 中A 中a A中a",
    "QmFzZTY0IGVuY29kZWQgZGF0YSBsb29rcyBsaWtlIHRoaXMgYW5kIGhhcyBubyBzcGFjZXMgYXQgYWxsLCBvbmx5IGxldHRlcnMrLzEyMw==",
    "d41d8cd98f00b204e9800998ecf8427e e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "https://example.com/a/b/c?d=e&f=%20g#h ../../x//y///z /\n/\r\n/",
    "-------- ======== ******** ........ ######## ________ ~~~~~~~~ !!!!????",
    "<|endoftext|><|im_start|>user<|im_end|>",
    "\u{10ffff}\u{e000}\u{fffd}\u{378}\u{e0001}",
    "pneumonoultramicroscopicsilicovolcanoconiosislopadotemachoselachogaleokranioleipsanodrimhypotrimmatosilphio",
];

#[test]
fn texts_of_many_kinds_have_the_count_of_the_reference() {
    for text in TEXTS {
        assert_same_count(text);
        // Every start and every end, so that each character comes first and last, too.
        for (at, _) in text.char_indices() {
            assert_same_count(&text[at..]);
            assert_same_count(&text[..at]);
        }
        for other in TEXTS {
            assert_same_count(&[*text, *other].concat());
        }
        assert_same_count(&text.repeat(50));
    }
}

#[test]
fn files_of_the_repository_have_the_count_of_the_reference() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders = vec![root.join("docs"), root.join("crates")];
    let mut files = vec![root.join("Cargo.lock"), root.join("README.md")];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(folder) else {
            continue;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path);
            }
        }
    }
    let texts = files
        .iter()
        .filter_map(|file| std::fs::read_to_string(file).ok());
    let compared = texts.inspect(|text| assert_same_count(text)).count();
    assert!(compared > 2, "the repository has files");
}

/// Random letters, the same in every run.
fn letters(bytes: usize, alphabet: &[u8]) -> String {
    let mut state = 1_u64;
    let letters = (0..bytes).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(alphabet[usize::try_from(state >> 33).unwrap() % alphabet.len()])
    });
    letters.collect()
}

/// Quadratic merges would take hours here.
#[test]
fn a_megabyte_without_a_break_has_the_count_of_the_reference() {
    const MEGABYTE: usize = 1 << 20;
    for unit in [
        "a", " ", "\n", "\r\n", "=", "A", "é", "中", "ab", "\u{301}", "\0", " \n",
    ] {
        let text = unit.repeat(MEGABYTE / unit.len());
        assert_same_count(&text);
        assert_same_count(&format!("x{text}y"));
    }
    assert_same_count(&letters(MEGABYTE, b"abcdefghijklmnopqrstuvwxyz"));
    assert_same_count(&letters(MEGABYTE, b"ab"));
    assert_same_count(&letters(MEGABYTE, b"=-_*#"));
    assert_same_count(&letters(
        MEGABYTE,
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
    ));
    assert_same_count(&letters(MEGABYTE, b" \t"));
}

/// Runs of characters of one kind, so that kinds meet in every order.
fn mixed_text() -> impl Strategy<Value = String> {
    let run = prop_oneof![
        "[a-z]{1,12}",
        "[A-Z]{1,6}",
        "[A-Z][a-z]{1,8}",
        "[0-9]{1,7}",
        " {1,5}",
        "[ \t\r\n]{1,6}",
        "\\s{1,4}",
        "'(s|S|t|re|VE|m|Ll|d|x)",
        "[!-/:-@\\[-`{-~]{1,5}",
        "\\p{Lu}{1,3}",
        "\\p{Ll}{1,3}",
        "\\p{Lt}{1,2}",
        "\\p{Lm}{1,2}",
        "\\p{Lo}{1,6}",
        "\\p{M}{1,3}",
        "\\p{N}{1,4}",
        "\\p{S}{1,3}",
        "\\p{Cc}{1,2}",
        "[\u{4e00}-\u{9fff}]{1,20}",
        "[а-я]{1,12}",
        "[A-Za-z0-9+/]{60,90}",
        any::<String>(),
    ];
    prop::collection::vec(run, 0..16).prop_map(|runs| runs.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn mixed_texts_have_the_count_of_the_reference(text in mixed_text()) {
        assert_same_count(&text);
    }

    #[test]
    fn any_text_has_the_count_of_the_reference(text in any::<String>()) {
        assert_same_count(&text);
    }

    /// Tokens that were not made to be neighbours.
    #[test]
    fn tokens_in_any_order_have_the_count_of_the_reference(ids in prop::collection::vec(0..199_998_u32, 0..60)) {
        let vocabulary = &bpe_openai::o200k_base().bpe;
        let bytes: Vec<u8> = ids.iter().flat_map(|id| vocabulary.token_bytes(*id).to_vec()).collect();
        assert_same_count(&String::from_utf8_lossy(&bytes));
    }
}
