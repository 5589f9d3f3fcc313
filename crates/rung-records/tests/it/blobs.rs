use rung_fault::{Code, Coded as _};
use rung_records::{Bearer, BlobUpload, ConnectionFilter};
use serde_json::json;

use crate::support::*;

fn upload(key: &str) -> BlobUpload {
    BlobUpload {
        connector_id: "mail".into(),
        connection_id: Some("home".into()),
        stream: "messages".into(),
        record_key: key.into(),
        mime_type: Some("text/plain; charset=latin1".into()),
    }
}

#[test]
fn a_blob_is_stored_once_and_readable_with_its_record() {
    each_store(|fixture| {
        let bytes: Vec<u8> = (0..700_000u32)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8)
            .collect();
        let blob = fixture
            .records
            .upload_blob(&fixture.owner, &upload("m"), &mut bytes.as_slice())
            .unwrap();
        assert_eq!(blob.size_bytes, 700_000);
        assert_eq!(
            fixture
                .records
                .upload_blob(&fixture.owner, &upload("m"), &mut bytes.as_slice())
                .unwrap(),
            blob
        );
        let seen = |bearer: &Bearer| {
            fixture
                .records
                .blob(bearer, &blob.blob_id, &ConnectionFilter::default())
                .map_err(|error| error.code())
        };
        assert_eq!(
            seen(&fixture.owner),
            Err(Code::BlobNotFound),
            "nothing refers to it yet"
        );
        fixture.put(
            "home",
            "messages",
            "m",
            json!({"id": "m", "subject": "x", "blob_ref": {"blob_id": blob.blob_id}}),
        );
        assert_eq!(
            seen(&fixture.owner).unwrap().mime_type,
            "text/plain; charset=latin1"
        );
        let mut back = Vec::new();
        while back.len() < bytes.len() {
            let at = back.len() as u64;
            back.extend(
                fixture
                    .records
                    .blob_bytes(&fixture.owner, &blob, at..blob.size_bytes)
                    .unwrap(),
            );
        }
        assert_eq!(back, bytes);
        assert_eq!(
            fixture
                .records
                .blob_bytes(&fixture.owner, &blob, 262_143..262_150)
                .unwrap(),
            &bytes[262_143..262_144],
            "a piece at a time"
        );
        let without = fixture.client(&[select("messages", &["subject"])], &["home"]);
        assert_eq!(seen(&without), Err(Code::BlobNotFound));
        let with = fixture.client(&[select("messages", &["blob_ref"])], &["home"]);
        assert!(seen(&with).is_ok());
        let elsewhere = fixture.client(&[select("messages", &["blob_ref"])], &["work"]);
        assert_eq!(seen(&elsewhere), Err(Code::BlobNotFound));
        assert_eq!(
            fixture
                .records
                .blob(
                    &fixture.owner,
                    "blob_sha256_00",
                    &ConnectionFilter::default()
                )
                .unwrap_err()
                .code(),
            Code::BlobNotFound
        );
        let refused = fixture
            .records
            .upload_blob(&with, &upload("m"), &mut &b"x"[..])
            .unwrap_err()
            .code();
        assert_eq!(refused, Code::PermissionError);
        fixture.delete("home", "messages", "m");
        assert_eq!(seen(&fixture.owner), Err(Code::BlobNotFound));
    });
}
