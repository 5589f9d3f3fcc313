//! Two years of mail, chats, appointments, orders and notes of the fictional Mira Holm.

use std::fmt::Write as _;

use jiff::civil::{DateTime, date};
use jiff::{Span, ToSpan as _};
use serde_json::{Value, json};

/// Deterministic generator of the sample records.
pub(crate) struct SampleGenerator {
    state: u64,
}

/// Correspondents.
const PEOPLE: [&str; 10] = [
    "Jonas Berg",
    "Amira Haddad",
    "Tomasz Nowak",
    "Ingrid Holm",
    "Elias Holm",
    "Sofia Marin",
    "Noor de Vries",
    "Dr. Feld",
    "Lena Brandt",
    "Rui Costa",
];

/// Topics: a name, and sentences about it.
const TOPICS: [(&str, [&str; 8]); 8] = [
    (
        "Harbour library",
        [
            "The reading room needs north light, so the long tables move to the quay side.",
            "The fire inspector wants a second stair behind the stacks before we pour the slab.",
            "Tomasz likes the brick, but the budget only carries it up to the first cornice.",
            "I measured the old quay wall again and it leans eleven millimetres at the corner.",
            "Could you send me the section with the raised floor by Thursday?",
            "The acoustics report says the children's corner will carry into the hall unless we close it.",
            "We agreed on oak for the handrails and linoleum for everything below.",
            "The model is at the workshop; they promise it for the jury on the twelfth.",
        ],
    ),
    (
        "Kitchen leak",
        [
            "The water comes from the flat above, whenever they run the dishwasher.",
            "The plumber can come on Tuesday between eight and noon.",
            "I photographed the stain under the sink so that you can show the insurance.",
            "They opened the ceiling and found a joint that was never tightened.",
            "The insurance wants two offers before they pay for the painting.",
            "It is dry now, but the floor has come up near the window.",
            "Please keep the receipt for the dehumidifier.",
            "The painter starts on Monday and needs three days.",
        ],
    ),
    (
        "Lisbon in May",
        [
            "The night train arrives at seven and the room is ready at noon, so we need breakfast.",
            "Rui knows a crag forty minutes north with a view of the sea.",
            "I booked the small flat in Graça, the one with the lemon tree.",
            "Do we want to rent a car for the two days in the hills?",
            "The tile museum is closed on Mondays, so let us go on Sunday.",
            "I have put everyone's share into the table: it is 312 euros each without food.",
            "Bring the long rope and the thin quickdraws.",
            "The ferry back leaves at 18:40 and there is no later one.",
        ],
    ),
    (
        "Mother's seventieth",
        [
            "Elias will bring the projector, and I have the slides from Bornholm.",
            "Thirty-one people have said yes, which is more than fit into the garden house.",
            "She must not know about the boat until the morning itself.",
            "The cake is ordered: almond, three layers, no marzipan.",
            "Aunt Karin cannot climb the stairs, so we need the ramp from the neighbours.",
            "Can you collect the flowers at nine? They close at ten on Saturdays.",
            "I wrote a speech and then threw it away; I will just tell the story of the kite.",
            "Please send me the old photographs in full size.",
        ],
    ),
    (
        "Marathon training",
        [
            "Eighteen kilometres along the canal, slow, and the knee kept quiet.",
            "The plan says hills on Wednesday, but the plan does not know about the wind.",
            "My resting pulse is down to fifty-two.",
            "I bought the wider shoes and it is like walking on a different street.",
            "Noor ran the last ten with me and talked the whole way.",
            "Two weeks to go: less distance, more sleep, no new food.",
            "The physiotherapist found the tight spot at once and was not gentle.",
            "I finished in 3:58:41 and cried at the bridge.",
        ],
    ),
    (
        "Tax return",
        [
            "The receipts for the home office are in the blue folder.",
            "They ask again for the certificate of the competition prize.",
            "The deadline is the end of July, or February with an adviser.",
            "I can only deduct the train if I show that the client did not pay it.",
            "The refund is 1,284.60 euros and will come within four weeks.",
            "Please sign page three and send it back as a scan.",
            "The bicycle counts as a work tool if it is used for site visits.",
            "I have entered the depreciation of the plotter over five years.",
        ],
    ),
    (
        "Ceramics course",
        [
            "The glaze came out green where I had wanted grey, and it is better so.",
            "Sofia's bowls are thinner than mine and never crack.",
            "The kiln is fired on Fridays, so bring everything by Thursday evening.",
            "I learned to centre the clay with my eyes closed.",
            "The teacher says to stop when it is nearly good.",
            "Three of my cups exploded because I was impatient.",
            "There is a market in November and we could share a table.",
            "I need two kilos of the white clay and a new wire.",
        ],
    ),
    (
        "Moving the office",
        [
            "The new rooms have windows on two sides and no air conditioning.",
            "Jonas has drawn the desks; nobody sits with their back to the door.",
            "The movers need the lift for four hours on the twenty-third.",
            "The network cabinet must stay cool, so it goes to the north wall.",
            "We keep the plan chest and give the couch away.",
            "Amira has found a table for twelve from a school that closed.",
            "The landlord accepts the first of September if we pay August.",
            "Please label the boxes by room and not by person.",
        ],
    ),
];

const ROOMS: [&str; 4] = ["family", "office", "climbing", "house"];
const CHATTER: [&str; 12] = [
    "on my way, ten minutes",
    "did you see the light on the harbour this morning?",
    "can you buy milk and lemons",
    "the jury moved it to four o'clock",
    "ha, exactly what I said",
    "I have the keys",
    "who took the long ruler?",
    "rain until six, then it clears",
    "send me the photo of the stain please",
    "yes",
    "no, the other one",
    "see you at the wall",
];
const PLACES: [&str; 6] = [
    "Office",
    "Harbour site",
    "Climbing hall",
    "Studio Ton",
    "Home",
    "Video call",
];
const ITEMS: [(&str, &str, u64); 14] = [
    ("Running shoes, wide", "sport", 12_990),
    ("Chalk bag", "sport", 1_890),
    ("Oak veneer samples", "work", 3_450),
    ("Plotter paper, 3 rolls", "work", 8_700),
    ("Dehumidifier", "house", 15_900),
    ("Almond cake, three layers", "food", 6_400),
    ("Coffee, 1 kg", "food", 2_250),
    ("White clay, 10 kg", "hobby", 1_990),
    ("Trimming wire", "hobby", 790),
    ("Night train, two berths", "travel", 23_800),
    ("Guide to Lisbon", "books", 1_695),
    ("A history of libraries", "books", 3_800),
    ("Desk lamp", "house", 8_490),
    ("Rain jacket", "clothes", 17_900),
];

impl SampleGenerator {
    pub(crate) fn new() -> Self {
        Self {
            state: 0x9E37_79B9_7F4A_7C15,
        }
    }

    /// Returns the next pseudo-random number (splitmix64).
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn random_below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).unwrap_or(1).max(1);
        usize::try_from(self.next() % limit).unwrap_or(0)
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.random_below(all.len())]
    }

    /// Returns a random time in the two years.
    fn random_time(&mut self) -> DateTime {
        let minutes = i64::try_from(self.random_below(730 * 24 * 60)).unwrap_or(0);
        let first = date(2024, 11, 1).at(0, 0, 0, 0);
        let at = first
            .checked_add(Span::new().minutes(minutes))
            .unwrap_or(first);
        // Between 7:00 and 21:59.
        let hour = 7 + at.hour() % 15;
        at.with().hour(hour).build().unwrap_or(at)
    }

    /// Returns different sentences of a topic.
    fn sentences(&mut self, topic: usize, count: usize) -> Vec<&'static str> {
        let all = TOPICS[topic].1;
        let from = self.random_below(all.len());
        (0..count.min(all.len()))
            .map(|at| all[(from + at * 3) % all.len()])
            .collect()
    }

    /// Returns all records of a connector: stream, key and data.
    pub(crate) fn records(&mut self, connector: &str) -> Vec<(&'static str, String, Value)> {
        match connector {
            "mail" => self.mail(),
            "chat" => self.chat(),
            "calendar" => self.calendar(),
            "shop" => self.shop(),
            _ => self.notes(),
        }
    }

    fn mail(&mut self) -> Vec<(&'static str, String, Value)> {
        let mut all = Vec::new();
        for thread in 0..110 {
            let topic = self.random_below(TOPICS.len());
            let person = self.pick(&PEOPLE);
            let subject = TOPICS[topic].0.to_owned();
            let thread_id = format!("t{thread:03}");
            all.push((
                "threads",
                thread_id.clone(),
                json!({"id": thread_id, "subject": subject}),
            ));
            let mut at = self.random_time();
            for reply in 0..=self.random_below(5) {
                let id = format!("m{thread:03}{reply}");
                let theirs = reply % 2 == 0;
                let (from, to) = if theirs {
                    (person, "Mira Holm")
                } else {
                    ("Mira Holm", person)
                };
                let count = 2 + self.random_below(5);
                let body = format!(
                    "{}\n\n{}\n\n{}",
                    if theirs { "Dear Mira," } else { "Hello," },
                    self.sentences(topic, count).join(" "),
                    from.split(' ').next().unwrap_or(from)
                );
                all.push((
                    "messages",
                    id.clone(),
                    json!({
                        "id": id, "thread_id": thread_id, "from": from, "to": to,
                        "subject": if reply == 0 { subject.clone() } else { format!("Re: {subject}") },
                        "body": body, "folder": if theirs { "inbox" } else { "sent" },
                        "sent_at": format_time(at), "has_attachment": self.random_below(6) == 0,
                    }),
                ));
                let wait = i64::try_from(1 + self.random_below(40)).unwrap_or(1);
                at = at.checked_add(wait.hours()).unwrap_or(at);
            }
        }
        all
    }

    fn chat(&mut self) -> Vec<(&'static str, String, Value)> {
        let mut all = Vec::new();
        for n in 0..600 {
            let id = format!("c{n:04}");
            let at = self.random_time();
            let person = self.pick(&PEOPLE);
            let from = if self.random_below(2) == 0 {
                "Mira Holm"
            } else {
                person
            };
            let text = if self.random_below(4) == 0 {
                let topic = self.random_below(TOPICS.len());
                self.sentences(topic, 1).concat()
            } else {
                self.pick(&CHATTER).to_owned()
            };
            let room = self.pick(&ROOMS);
            all.push((
                "chat_messages",
                id.clone(),
                json!({"id": id, "room": room, "from": from, "text": text, "sent_at": format_time(at)}),
            ));
        }
        all
    }

    fn calendar(&mut self) -> Vec<(&'static str, String, Value)> {
        let mut all = Vec::new();
        for n in 0..160 {
            let id = format!("e{n:03}");
            let at = self
                .random_time()
                .with()
                .minute(0)
                .build()
                .unwrap_or_else(|_| self.random_time());
            let length = i64::try_from(1 + self.random_below(3)).unwrap_or(1);
            let topic = TOPICS[self.random_below(TOPICS.len())].0;
            let person = self.pick(&PEOPLE);
            let place = self.pick(&PLACES);
            let ends = at.checked_add(length.hours()).unwrap_or(at);
            all.push((
                "events",
                id.clone(),
                json!({"id": id, "title": topic, "place": place, "with": person, "starts_at": format_time(at), "ends_at": format_time(ends)}),
            ));
        }
        all
    }

    fn shop(&mut self) -> Vec<(&'static str, String, Value)> {
        let mut all = Vec::new();
        for n in 0..120 {
            let id = format!("o{n:03}");
            let at = self.random_time();
            let (item, category, price) = self.pick(&ITEMS);
            let status = self.pick(&["delivered", "delivered", "delivered", "returned"]);
            all.push((
                "orders",
                id.clone(),
                json!({"id": id, "item": item, "category": category, "price_cents": price, "currency": "EUR", "status": status, "ordered_at": format_time(at)}),
            ));
        }
        all
    }

    fn notes(&mut self) -> Vec<(&'static str, String, Value)> {
        let mut all = Vec::new();
        for n in 0..24 {
            let id = format!("n{n:02}");
            let topic = n % TOPICS.len();
            let at = self.random_time();
            // From one section to very long.
            let sections = [1, 4, 30, 160][n % 4];
            let mut body = format!("# {}\n", TOPICS[topic].0);
            for section in 1..=sections {
                let count = 4 + self.random_below(5);
                let lines = self.sentences(topic, count).join(" ");
                let _never_fails = write!(body, "\n## {section}\n\n{lines}\n");
            }
            let tag = if sections > 4 { "journal" } else { "list" };
            all.push((
                "notes",
                id.clone(),
                json!({"id": id, "title": TOPICS[topic].0, "body": body, "tag": tag, "written_at": format_time(at)}),
            ));
        }
        all
    }
}

fn format_time(at: DateTime) -> String {
    format!("{}Z", at.strftime("%Y-%m-%dT%H:%M:%S"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_is_the_same_every_time_and_its_notes_are_long() {
        let make = |connector| SampleGenerator::new().records(connector);
        for connector in ["mail", "chat", "calendar", "shop", "notes"] {
            let (one, other) = (make(connector), make(connector));
            assert!(one.len() >= 24 && one == other, "{connector}");
            let mut keys: Vec<_> = one.iter().map(|(stream, key, _)| (stream, key)).collect();
            keys.sort();
            keys.dedup();
            assert_eq!(keys.len(), one.len(), "{connector}: every key once");
        }
        let longest = make("notes")
            .iter()
            .filter_map(|(_, _, note)| note["body"].as_str().map(str::len))
            .max();
        assert!(longest > Some(50_000), "{longest:?}");
    }
}
