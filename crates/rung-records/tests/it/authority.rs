//! Authorization requests, decisions, codes and tokens.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use data_encoding::BASE64URL_NOPAD;
use rung_fault::{Code, Coded as _};
use rung_records::authority::{
    ApprovalResponse, ApprovedRequest, AuthorizationDetail, ClientMetadata, ConsentChoice,
    Delivery, Introspection, IssuedToken, NewAuthorizationRequest, PollResult, Redemption,
    RequestedAccess, SourceSelection, TokenKind,
};
use rung_records::{Clock, ListQuery, Records, RecordsOptions};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::support::*;

const NOW_MS: i64 = 1_790_000_000_000;
const VERIFIER: &str = "a-verifier-that-is-long-enough-to-be-one-0123456789";
const REDIRECT: &str = "https://app.example/cb";

/// Runs on a store with two connections and a manual clock.
fn with_mail_accounts(test: impl Fn(&Fixture, &AtomicI64)) {
    let now = Arc::new(AtomicI64::default());
    let options = || {
        now.store(NOW_MS, Ordering::Relaxed);
        let now = now.clone();
        RecordsOptions {
            clock: Clock::new(move || now.load(Ordering::Relaxed)),
            ..RecordsOptions::default()
        }
    };
    each_store_with(options, |fixture| {
        for (key, sent) in [("old", "2025-01-01"), ("new", "2026-05-01")] {
            let data =
                json!({"id": key, "subject": "s", "body": "b", "secret": "hush", "sent_at": sent});
            fixture.put("home", "messages", key, data);
        }
        test(&fixture, &now);
    });
}

fn advance_clock(now: &AtomicI64, seconds: i64) {
    now.fetch_add(seconds * 1_000, Ordering::Relaxed);
}

fn client(records: &Records) -> ClientMetadata {
    records
        .register_client(&json!({
            "client_name": "App", "redirect_uris": [REDIRECT],
            "grant_types": ["authorization_code", "refresh_token"],
        }))
        .unwrap()
}

fn authorization_details(mode: &str) -> Vec<AuthorizationDetail> {
    let details = json!([{
        "type": "https://pdpp.dev/data-access", "source": {"id": "mail"}, "access_mode": mode,
        "purpose_code": "https://pdpp.dev/purpose/personalization",
        "streams": [
            {"name": "messages", "fields": ["subject", "body", "sent_at"], "instance_ids": ["home"]},
            {"name": "threads", "necessity": "optional", "instance_ids": ["home"]},
        ],
    }]);
    AuthorizationDetail::parse_all(&details).unwrap()
}

fn redirect_delivery() -> Delivery {
    Delivery::Redirect {
        redirect_uri: REDIRECT.to_owned(),
        state: Some("xyz".to_owned()),
        code_challenge: BASE64URL_NOPAD.encode(&Sha256::digest(VERIFIER.as_bytes())),
    }
}

fn new_request(
    client: &ClientMetadata,
    wanted: RequestedAccess,
    way: Delivery,
) -> NewAuthorizationRequest {
    NewAuthorizationRequest {
        client: client.clone(),
        wanted,
        way,
        resource: None,
        package: false,
        parent_package_id: None,
    }
}

fn approve(fixture: &Fixture, id: &str, choice: &ConsentChoice) -> Result<ApprovedRequest, Code> {
    let records = &fixture.records;
    let review = records.review(&fixture.owner, id, choice);
    let review = review.map_err(|error| error.code())?;
    let approved = records.approve(&fixture.owner, id, &review.revision, false);
    approved.map_err(|error| error.code())
}

fn expect_code(approved: ApprovedRequest) -> String {
    match approved.response {
        ApprovalResponse::Redirect { code, state, .. } => {
            assert_eq!(state.as_deref(), Some("xyz"));
            code
        }
        other => panic!("{other:?}"),
    }
}

fn expect_issued(redeemed: Redemption) -> IssuedToken {
    match redeemed {
        Redemption::Issued(issued) => *issued,
        Redemption::Replayed => panic!("it was used before"),
    }
}

fn count_readable(fixture: &Fixture, issued: &IssuedToken) -> Result<usize, Code> {
    let bearer = fixture.records.authenticate(issued.access_token.expose());
    let bearer = bearer.map_err(|error| error.code())?;
    let page = fixture.records.list(&bearer, &page("messages", 10));
    page.map(|page| page.records.len())
        .map_err(|error| error.code())
}

#[test]
fn approved_means_issued_once_and_what_was_reviewed() {
    with_mail_accounts(|fixture, now| {
        let (records, client) = (&fixture.records, client(&fixture.records));
        let filed = records
            .create_authorization_request(new_request(
                &client,
                RequestedAccess::Data(authorization_details("continuous")),
                redirect_delivery(),
            ))
            .unwrap();
        // Only the latest reviewed revision can be approved.
        let first = records
            .review(&fixture.owner, &filed.id, &ConsentChoice::default())
            .unwrap();
        let narrowed = ConsentChoice {
            sources: Some(vec![SourceSelection {
                detail_index: Some(0),
                streams: Some(vec![(
                    "messages".into(),
                    Some(vec!["subject".into(), "secret".into()]),
                )]),
                since: Some("2026-01-01".into()),
                ..SourceSelection::default()
            }]),
            ..ConsentChoice::default()
        };
        let second = records
            .review(&fixture.owner, &filed.id, &narrowed)
            .unwrap();
        for stale in ["", "nonsense", first.revision.as_str()] {
            let refused = records
                .approve(&fixture.owner, &filed.id, stale, false)
                .unwrap_err();
            assert_eq!(refused.code(), Code::InvalidRequest);
        }
        let approved = records
            .approve(&fixture.owner, &filed.id, &second.revision, false)
            .unwrap();
        let grant = approved.grants[0].clone();
        assert_eq!(grant.streams.len(), 1);
        assert_eq!(
            grant.streams[0].fields,
            ["id", "subject"],
            "what was not asked for cannot be added"
        );
        // A request can be decided only once.
        let again = records
            .approve(&fixture.owner, &filed.id, &second.revision, false)
            .unwrap_err();
        assert_eq!(again.code(), Code::ApprovalConflict);
        assert_eq!(
            records.deny(&fixture.owner, &filed.id).unwrap_err().code(),
            Code::ApprovalConflict
        );
        let code = expect_code(approved);

        // The code is bound to its client, redirect URI and verifier.
        let redeem = |client: &str, uri: &str, verifier: &str| {
            let redeemed = records.redeem_authorization_code(&code, client, uri, verifier);
            redeemed.map_err(|error| error.code())
        };
        let id = client.client_id.as_str();
        for (who, uri, verifier) in [
            ("longview", REDIRECT, VERIFIER),
            (id, "https://app.example/cb/", VERIFIER),
            (
                id,
                REDIRECT,
                "another-verifier-that-is-long-enough-0123456789",
            ),
            (id, REDIRECT, ""),
        ] {
            assert_eq!(
                redeem(who, uri, verifier).unwrap_err(),
                Code::InvalidGrant,
                "{who} {uri}"
            );
        }
        let given = expect_issued(redeem(id, REDIRECT, VERIFIER).unwrap());
        assert_eq!(
            count_readable(fixture, &given),
            Ok(1),
            "only what is of this year"
        );
        // A replayed code revokes the tokens issued for it.
        assert!(matches!(
            redeem(id, REDIRECT, VERIFIER),
            Ok(Redemption::Replayed)
        ));
        assert_eq!(
            count_readable(fixture, &given),
            Err(Code::AuthenticationError)
        );
        assert!(matches!(
            records.introspect(given.access_token.expose()).unwrap(),
            Introspection::Inactive(Some("refresh_family_revoked"))
        ));
        let refresh = given.refresh_token.as_ref().unwrap();
        assert_eq!(
            records
                .redeem_refresh_token(refresh.expose(), &client)
                .unwrap_err()
                .code(),
            Code::InvalidGrant
        );
        advance_clock(now, 1);
    });
}

#[test]
fn undecided_requests_and_unredeemed_codes_expire() {
    with_mail_accounts(|fixture, now| {
        let (records, client) = (&fixture.records, client(&fixture.records));
        let file = |way| {
            records
                .create_authorization_request(new_request(
                    &client,
                    RequestedAccess::Data(authorization_details("continuous")),
                    way,
                ))
                .unwrap()
        };
        let late = file(redirect_delivery());
        let polled = file(Delivery::Poll);
        let secret = polled.secret.as_ref().unwrap().expose();
        assert!(matches!(
            records
                .poll_authorization(secret, None, Some(&polled.id))
                .unwrap(),
            PollResult::Pending
        ));
        assert!(matches!(
            records.poll_authorization(secret, None, None).unwrap(),
            PollResult::SlowDown
        ));
        advance_clock(now, 299);
        assert!(records.authorization_request(&late.id).is_ok());
        advance_clock(now, 1);
        assert_eq!(
            records.authorization_request(&late.id).unwrap_err().code(),
            Code::NotFound
        );
        assert_eq!(
            approve(fixture, &late.id, &ConsentChoice::default()).unwrap_err(),
            Code::NotFound
        );
        assert!(matches!(
            records.poll_authorization(secret, None, None).unwrap(),
            PollResult::Expired
        ));

        let filed = file(redirect_delivery());
        let code = expect_code(approve(fixture, &filed.id, &ConsentChoice::default()).unwrap());
        advance_clock(now, 300);
        let refused = records
            .redeem_authorization_code(&code, &client.client_id, REDIRECT, VERIFIER)
            .unwrap_err();
        assert_eq!(refused.code(), Code::InvalidGrant);
        // The grant exists although it was not collected, and the owner sees it.
        assert_eq!(records.grants(&fixture.owner).unwrap().len(), 1);

        // Requests long expired are deleted.
        advance_clock(now, 2 * 24 * 60 * 60);
        records.maintenance(&|_| {}).unwrap();
        assert_eq!(
            records
                .poll_authorization(secret, None, None)
                .unwrap_err()
                .code(),
            Code::InvalidGrant
        );
    });
}

#[test]
fn a_refresh_token_works_once_and_a_stolen_one_ends_the_family() {
    with_mail_accounts(|fixture, now| {
        let (records, client) = (&fixture.records, client(&fixture.records));
        let filed = records
            .create_authorization_request(new_request(
                &client,
                RequestedAccess::Data(authorization_details("continuous")),
                redirect_delivery(),
            ))
            .unwrap();
        let code = expect_code(approve(fixture, &filed.id, &ConsentChoice::default()).unwrap());
        let first = expect_issued(
            records
                .redeem_authorization_code(&code, &client.client_id, REDIRECT, VERIFIER)
                .unwrap(),
        );
        assert_eq!(first.expires_in_s, Some(600));
        advance_clock(now, 599);
        assert_eq!(count_readable(fixture, &first), Ok(2));
        advance_clock(now, 1);
        assert_eq!(
            count_readable(fixture, &first),
            Err(Code::AuthenticationError),
            "it is to be refreshed"
        );
        let old = first.refresh_token.as_ref().unwrap().expose();
        let other = records.client("longview").unwrap().unwrap();
        assert_eq!(
            records
                .redeem_refresh_token(old, &other)
                .unwrap_err()
                .code(),
            Code::InvalidGrant
        );
        let second = expect_issued(records.redeem_refresh_token(old, &client).unwrap());
        assert_eq!(count_readable(fixture, &second), Ok(2));
        assert_eq!(second.token_kind, first.token_kind);
        // The old refresh token is replayed.
        assert!(matches!(
            records.redeem_refresh_token(old, &client).unwrap(),
            Redemption::Replayed
        ));
        assert_eq!(
            count_readable(fixture, &second),
            Err(Code::AuthenticationError)
        );
        let next = second.refresh_token.as_ref().unwrap().expose();
        assert_eq!(
            records
                .redeem_refresh_token(next, &client)
                .unwrap_err()
                .code(),
            Code::InvalidGrant
        );
    });
}

#[test]
fn many_at_once_get_one_token() {
    with_mail_accounts(|fixture, _| {
        let (records, client) = (&fixture.records, client(&fixture.records));
        let filed = records
            .create_authorization_request(new_request(
                &client,
                RequestedAccess::Data(authorization_details("continuous")),
                redirect_delivery(),
            ))
            .unwrap();
        let review = records
            .review(&fixture.owner, &filed.id, &ConsentChoice::default())
            .unwrap();
        let approved: Vec<_> = std::thread::scope(|scope| {
            let approving = || records.approve(&fixture.owner, &filed.id, &review.revision, false);
            let all: Vec<_> = (0..8).map(|_| scope.spawn(approving)).collect();
            all.into_iter()
                .filter_map(|one| one.join().unwrap().ok())
                .collect()
        });
        assert_eq!(approved.len(), 1, "one decision");
        assert_eq!(records.grants(&fixture.owner).unwrap().len(), 1);
        let code = expect_code(approved.into_iter().next().unwrap());
        let redeemed: Vec<_> = std::thread::scope(|scope| {
            let redeeming =
                || records.redeem_authorization_code(&code, &client.client_id, REDIRECT, VERIFIER);
            let all: Vec<_> = (0..8).map(|_| scope.spawn(redeeming)).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let given = redeemed
            .iter()
            .filter(|one| matches!(one, Ok(Redemption::Issued(_))))
            .count();
        assert!(given <= 1, "{redeemed:?}");
    });
}

#[test]
fn a_grant_for_one_use_is_used_once_and_within_a_day() {
    with_mail_accounts(|fixture, now| {
        let (records, client) = (&fixture.records, client(&fixture.records));
        let filed = records
            .create_authorization_request(new_request(
                &client,
                RequestedAccess::Data(authorization_details("single_use")),
                Delivery::Pushed,
            ))
            .unwrap();
        // The owner cannot grant more than was requested.
        let choice = ConsentChoice {
            single_use: Some(false),
            ..ConsentChoice::default()
        };
        let approved = approve(fixture, &filed.id, &choice).unwrap();
        assert_eq!(approved.grants[0].access_mode, "single_use");
        let ApprovalResponse::Token(given) = approved.response else {
            panic!("a token goes back at once");
        };
        assert!(given.refresh_token.is_none());
        assert_eq!(count_readable(fixture, &given), Ok(2));
        advance_clock(now, 24 * 60 * 60 - 1);
        assert_eq!(count_readable(fixture, &given), Ok(2));
        advance_clock(now, 1);
        assert_eq!(count_readable(fixture, &given), Err(Code::GrantExpired));

        // Approval on the page returns a code, which can be exchanged once.
        let filed = records
            .create_authorization_request(new_request(
                &client,
                RequestedAccess::Data(authorization_details("single_use")),
                Delivery::Pushed,
            ))
            .unwrap();
        let review = records
            .review(&fixture.owner, &filed.id, &ConsentChoice::default())
            .unwrap();
        let approved = records
            .approve(&fixture.owner, &filed.id, &review.revision, true)
            .unwrap();
        let ApprovalResponse::DisplayedCode(code) = approved.response else {
            panic!("a person is shown no token");
        };
        assert!(code.starts_with("cex_"));
        assert_eq!(
            records
                .redeem_authorization_code(&code, &client.client_id, REDIRECT, VERIFIER)
                .unwrap_err()
                .code(),
            Code::InvalidGrant
        );
        assert_eq!(
            count_readable(
                fixture,
                &expect_issued(records.redeem_displayed_code(&code).unwrap())
            ),
            Ok(2)
        );
        assert!(matches!(
            records.redeem_displayed_code(&code).unwrap(),
            Redemption::Replayed
        ));
    });
}

#[test]
fn revoking_stops_an_open_cursor_and_a_package_outlives_one_of_its_children() {
    with_mail_accounts(|fixture, _| {
        let records = &fixture.records;
        records
            .register_source(json!({"protocol_version": "0.1.0", "connector_id": "notes", "version": "1", "streams": [
                {"name": "notes", "primary_key": ["id"], "schema": {"type": "object", "properties": {"id": {"type": "string"}}}}]}))
            .unwrap();
        records
            .put_connection(&fixture.owner, "pad", "notes", None)
            .unwrap();
        let client = client(records);
        let filed = records
            .create_authorization_request(new_request(
                &client,
                RequestedAccess::Data(authorization_details("continuous")),
                Delivery::Pushed,
            ))
            .unwrap();
        let ApprovalResponse::Token(given) = approve(fixture, &filed.id, &ConsentChoice::default())
            .unwrap()
            .response
        else {
            panic!("a token goes back at once");
        };
        let bearer = records.authenticate(given.access_token.expose()).unwrap();
        let first = records.list(&bearer, &page("messages", 1)).unwrap();
        assert!(first.has_more);
        records
            .revoke_grant(&fixture.owner, &bearer.grant().unwrap().grant_id, &NoTokens)
            .unwrap();
        assert_eq!(count_readable(fixture, &given), Err(Code::GrantRevoked));

        // Two sources picked by the owner become a package.
        let pick = RequestedAccess::Pick { one_source: false };
        let filed = records
            .create_authorization_request(new_request(&client, pick, Delivery::Pushed))
            .unwrap();
        let source = |connector: &str, connection: &str| SourceSelection {
            connector: connector.into(),
            connections: vec![connection.into()],
            ..SourceSelection::default()
        };
        let choice = ConsentChoice {
            sources: Some(vec![source("mail", "home"), source("notes", "pad")]),
            ..ConsentChoice::default()
        };
        let approved = approve(fixture, &filed.id, &choice).unwrap();
        let ApprovalResponse::Token(token) = approved.response else {
            panic!("a token goes back at once");
        };
        assert!(matches!(token.token_kind, TokenKind::Package(_)));
        let shown = token.access_token.expose();
        assert_eq!(
            records.authenticate(shown).unwrap_err().code(),
            Code::PermissionError,
            "it is for /mcp"
        );
        assert!(records.authenticate_agent(shown).is_ok());
        records
            .revoke_grant(&fixture.owner, &approved.grants[0].grant_id, &NoTokens)
            .unwrap();
        let Introspection::Active { grants, .. } = records.introspect(shown).unwrap() else {
            panic!("the other child holds");
        };
        assert_eq!(grants.len(), 1);
        records
            .revoke_grant(&fixture.owner, &approved.grants[1].grant_id, &NoTokens)
            .unwrap();
        assert!(matches!(
            records.introspect(shown).unwrap(),
            Introspection::Inactive(Some("package_revoked"))
        ));
    });
}

#[test]
fn the_owner_chooses_the_account_and_agrees_to_training_separately() {
    with_mail_accounts(|fixture, _| {
        let (records, client) = (&fixture.records, client(&fixture.records));
        let details = |purpose: &str| {
            json!([{"type": "https://pdpp.dev/data-access", "source": {"id": "mail"}, "access_mode": "continuous",
                    "purpose_code": format!("https://pdpp.dev/purpose/{purpose}"), "streams": [{"name": "messages"}]}])
        };
        let file = |purpose: &str| {
            let wanted =
                RequestedAccess::Data(AuthorizationDetail::parse_all(&details(purpose)).unwrap());
            records
                .create_authorization_request(new_request(&client, wanted, Delivery::Pushed))
                .unwrap()
                .id
        };
        let of = |connections: &[&str]| ConsentChoice {
            sources: Some(vec![SourceSelection {
                detail_index: Some(0),
                connections: connections.iter().map(|id| (*id).to_owned()).collect(),
                ..SourceSelection::default()
            }]),
            ..ConsentChoice::default()
        };
        let id = file("research");
        assert_eq!(
            approve(fixture, &id, &ConsentChoice::default()).unwrap_err(),
            Code::AmbiguousConnection
        );
        assert_eq!(
            approve(fixture, &id, &of(&["elsewhere"])).unwrap_err(),
            Code::ConnectionNotFound
        );
        let approved = approve(fixture, &id, &of(&["work"])).unwrap();
        assert_eq!(approved.grants[0].streams[0].instance_ids, ["work"]);

        let id = file("ai_training");
        assert_eq!(
            approve(fixture, &id, &of(&["home"])).unwrap_err(),
            Code::InvalidRequest
        );
        let agreed = ConsentChoice {
            ai_training: true,
            ..of(&["home"])
        };
        assert!(approve(fixture, &id, &agreed).is_ok());
    });
}

#[test]
fn what_is_previewed_is_what_is_shown() {
    with_mail_accounts(|fixture, _| {
        let (records, client) = (&fixture.records, client(&fixture.records));
        let filed = records
            .create_authorization_request(new_request(
                &client,
                RequestedAccess::Data(authorization_details("continuous")),
                Delivery::Pushed,
            ))
            .unwrap();
        let petition = records.authorization_request(&filed.id).unwrap();
        let offered = records.consent_options(&fixture.owner, &petition).unwrap();
        assert_eq!(offered.len(), 1);
        let messages = &offered[0].streams[0];
        assert!(messages.required && !offered[0].streams[1].required);
        let preview = messages.preview.as_ref().unwrap();
        assert_eq!(preview.records, 2);
        assert_eq!(preview.samples.len(), 2);
        let shown = |fields: &[(String, Value)]| {
            fields
                .iter()
                .map(|(name, _)| name.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            shown(&preview.samples[0].fields),
            ["id", "subject", "body", "sent_at"]
        );
        let review = records
            .review(&fixture.owner, &filed.id, &ConsentChoice::default())
            .unwrap();
        let before = records
            .preview(&fixture.owner, &review.decision.grants[0])
            .unwrap();
        let approved = records
            .approve(&fixture.owner, &filed.id, &review.revision, false)
            .unwrap();
        let ApprovalResponse::Token(given) = approved.response else {
            panic!("a token goes back at once");
        };
        let bearer = records.authenticate(given.access_token.expose()).unwrap();
        let query = ListQuery {
            count: rung_records::CountMode::Exact,
            ..page("messages", 3)
        };
        let read = records.list(&bearer, &query).unwrap();
        assert_eq!(read.count, Some(before[0].records));
        for (record, sample) in read.records.iter().zip(&before[0].samples) {
            let data: Value = parsed(record)["data"].clone();
            let fields: serde_json::Map<String, Value> = sample.fields.iter().cloned().collect();
            assert_eq!(data, Value::Object(fields));
        }
    });
}

#[test]
fn after_five_wrong_passwords_attempts_are_delayed() {
    with_mail_accounts(|fixture, now| {
        let records = &fixture.records;
        let sign_in = |password: &str| {
            records
                .sign_in("owner_local", password, None)
                .map_err(|error| error.code())
        };
        assert_eq!(
            sign_in("x").unwrap_err(),
            Code::AuthenticationError,
            "there is none yet"
        );
        records
            .set_password(&fixture.owner, "correct horse")
            .unwrap();
        let session = sign_in("correct horse").unwrap();
        let signed_in = |session: &str| records.session_owner(session).unwrap().is_some();
        assert!(signed_in(session.token.expose()) && !signed_in("rung_guess"));
        for _ in 0..5 {
            assert_eq!(sign_in("wrong").unwrap_err(), Code::AuthenticationError);
        }
        assert_eq!(
            sign_in("correct horse").unwrap_err(),
            Code::SlowDown,
            "not even the right one"
        );
        advance_clock(now, 1);
        assert_eq!(sign_in("wrong").unwrap_err(), Code::AuthenticationError);
        advance_clock(now, 1);
        assert_eq!(
            sign_in("correct horse").unwrap_err(),
            Code::SlowDown,
            "longer each time"
        );
        advance_clock(now, 1);
        assert!(sign_in("correct horse").is_ok());
        // A session lasts a week, or until the password changes.
        advance_clock(now, 6 * 24 * 60 * 60);
        assert!(signed_in(session.token.expose()));
        advance_clock(now, 24 * 60 * 60);
        assert!(!signed_in(session.token.expose()));
        let session = sign_in("correct horse").unwrap();
        records
            .set_password(&fixture.owner, "battery staple")
            .unwrap();
        assert!(!signed_in(session.token.expose()));
        let session = sign_in("battery staple").unwrap();
        records.sign_out(session.token.expose()).unwrap();
        assert!(!signed_in(session.token.expose()));
    });
}

#[test]
fn parallel_attempts_do_not_exceed_the_limit() {
    with_mail_accounts(|fixture, _| {
        let records = &fixture.records;
        records
            .set_password(&fixture.owner, "correct horse")
            .unwrap();
        let session = records
            .sign_in("owner_local", "correct horse", None)
            .unwrap();
        let guessed: Vec<Code> = std::thread::scope(|scope| {
            let guess = |n: usize| {
                records
                    .sign_in("owner_local", &format!("guess {n}"), None)
                    .unwrap_err()
                    .code()
            };
            let all: Vec<_> = (0..16).map(|n| scope.spawn(move || guess(n))).collect();
            let mut guessed: Vec<Code> = all.into_iter().map(|one| one.join().unwrap()).collect();
            // Of simultaneous attempts one is checked and the others are delayed, so the limit itself may not be
            // reached yet.
            loop {
                guessed.push(guess(guessed.len()));
                if guessed.last() == Some(&Code::SlowDown) {
                    break;
                }
            }
            guessed
        });
        // A known browser is not locked out by them, and has its own limit.
        let shown = session.browser.expose().as_str();
        let again = |password: &str| {
            let signed = records.sign_in("owner_local", password, Some(shown));
            signed.map_err(|error| error.code())
        };
        for _ in 0..3 {
            assert_eq!(again("wrong").unwrap_err(), Code::AuthenticationError);
        }
        assert!(again("correct horse").is_ok());
        assert_eq!(
            again("correct horse").unwrap_err(),
            Code::SlowDown,
            "it was known once"
        );
        let judged = guessed
            .iter()
            .filter(|code| **code == Code::AuthenticationError)
            .count();
        assert!(judged <= 5, "{guessed:?}");
    });
}

#[test]
fn secrets_are_stored_as_hashes() {
    let fixture = Fixture::sqlite(RecordsOptions::default()).with_source();
    fixture.put("home", "messages", "m", json!({"id": "m"}));
    let (records, client) = (&fixture.records, client(&fixture.records));
    records
        .set_password(&fixture.owner, "correct horse")
        .unwrap();
    let mut secrets = vec!["correct horse".to_owned()];
    let session = records
        .sign_in("owner_local", "correct horse", None)
        .unwrap();
    secrets.push(session.token.expose().clone());
    let filed = records
        .create_authorization_request(new_request(
            &client,
            RequestedAccess::Data(authorization_details("continuous")),
            redirect_delivery(),
        ))
        .unwrap();
    let code = expect_code(approve(&fixture, &filed.id, &ConsentChoice::default()).unwrap());
    let given = expect_issued(
        records
            .redeem_authorization_code(&code, &client.client_id, REDIRECT, VERIFIER)
            .unwrap(),
    );
    secrets.extend([code, given.access_token.expose().clone()]);
    secrets.push(given.refresh_token.as_ref().unwrap().expose().clone());
    let polled = records
        .create_authorization_request(new_request(
            &client,
            RequestedAccess::OwnerToken,
            Delivery::Device,
        ))
        .unwrap();
    secrets.push(polled.secret.as_ref().unwrap().expose().clone());
    let server = records
        .issue_resource_server_secret(&fixture.owner, "rs")
        .unwrap();
    assert!(records.is_resource_server("rs", server.expose()).unwrap());
    assert!(
        !records
            .is_resource_server("other", server.expose())
            .unwrap()
    );
    secrets.push(server.expose().clone());
    for file in std::fs::read_dir(fixture.dir.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        for secret in &secrets {
            let found = bytes
                .windows(secret.len())
                .any(|window| window == secret.as_bytes());
            assert!(!found, "{secret} is in a file");
        }
    }
}

#[test]
fn a_remote_introspection_response_is_accepted_whole_or_rejected() {
    with_mail_accounts(|fixture, now| {
        let (records, client) = (&fixture.records, client(&fixture.records));
        let filed = records
            .create_authorization_request(new_request(
                &client,
                RequestedAccess::Data(authorization_details("continuous")),
                Delivery::Pushed,
            ))
            .unwrap();
        let ApprovalResponse::Token(given) = approve(fixture, &filed.id, &ConsentChoice::default())
            .unwrap()
            .response
        else {
            panic!("a token goes back at once");
        };
        let told = records.introspect(given.access_token.expose()).unwrap();
        let told = told.to_response("https://as.example", "https://rs.example");
        let bearer = records
            .authenticate_introspected("a foreign token", &told)
            .unwrap();
        assert_eq!(
            records
                .list(&bearer, &page("messages", 10))
                .unwrap()
                .records
                .len(),
            2
        );
        let mut odd: Vec<(&str, Value)> = Vec::new();
        for (path, value) in [
            ("/active", json!("true")),
            ("/pdpp_token_kind", json!("mcp_package")),
            ("/pdpp_token_kind", json!("superuser")),
            ("/subject_id", json!("nobody")),
            ("/grant_id", json!("grt_other")),
            ("/exp", json!("soon")),
            ("/exp", json!(now.load(Ordering::Relaxed) / 1_000)),
            ("/authorization_details", json!([])),
            ("/authorization_details/0/type", json!("other")),
            ("/authorization_details/0/streams", json!([])),
            ("/authorization_details/0/streams/0/fields", json!("*")),
            ("/client_id", json!(7)),
        ] {
            let mut changed = told.clone();
            match changed.pointer_mut(path) {
                Some(place) => *place = value,
                None => changed[path.trim_start_matches('/')] = value,
            }
            odd.push((path, changed));
        }
        odd.push(("nothing", Value::Null));
        odd.push(("a list", json!([told.clone()])));
        for (path, changed) in odd {
            assert!(
                records.authenticate_introspected("t", &changed).is_err(),
                "{path}: {changed}"
            );
        }
    });
}
