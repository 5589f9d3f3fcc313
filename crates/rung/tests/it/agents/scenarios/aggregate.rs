//! `aggregate`: structured results and text.

use serde_json::json;

use super::start_reference_adapter;

#[test]
fn aggregate_accepts_the_same_typed_filter() {
    let (_sandbox, provider, mut agent) = start_reference_adapter(&[]);
    agent.call_ok("aggregate", json!({"stream": "orders", "metric": "count", "filter": {"status": "open", "at": {"gte": "2026"}}}));
    let asked = provider.last_request();
    assert!(
        asked.has_param("filter[status]", "open")
            && asked.has_param("filter[at][gte]", "2026")
            && asked.has_param("metric", "count")
    );
    let before = provider.requests().len();
    let error = agent.call_error(
        "aggregate",
        json!({"stream": "orders", "metric": "count", "filter": "status=open"}),
    );
    assert!(error["message"].as_str().unwrap().contains("validation"));
    assert_eq!(
        agent.call_error(
            "aggregate",
            json!({"stream": "orders", "metric": "count", "filter": {}})
        )["code"],
        "invalid_filter"
    );
    assert_eq!(provider.requests().len(), before);
}

#[test]
fn scalar_aggregate_surfaces_the_number_in_text() {
    let (_sandbox, _provider, mut agent) = start_reference_adapter(&[]);
    let given = agent.call_ok("aggregate", json!({"stream": "orders", "metric": "count"}));
    assert_eq!(given.text(), "count(orders) = 5.");
    assert_eq!(given.structured()["data"]["value"], 5);
}

#[test]
fn grouped_aggregate_previews_buckets_in_text() {
    let (_sandbox, _provider, mut agent) = start_reference_adapter(&[]);
    let given = agent.call_ok(
        "aggregate",
        json!({"stream": "orders", "metric": "count", "group_by": "status"}),
    );
    assert!(
        given
            .text()
            .starts_with("count(orders) group_by=\"status\": 2 group(s) [\"open\"=4, \"done\"=2]"),
        "{}",
        given.text()
    );
    assert_eq!(
        given.structured()["data"]["groups"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn aggregate_description_mentions_other_count() {
    let (_sandbox, _provider, mut agent) = start_reference_adapter(&[]);
    let tools = agent.list_tools();
    let told = tools[2]["description"].as_str().unwrap();
    for word in [
        "other_count",
        "positive",
        "top-N truncation",
        "Never returns record bodies",
        "XOR",
    ] {
        assert!(told.contains(word), "{word}: {told}");
    }
}

#[test]
fn aggregate_text_summary_includes_other_count_when_present() {
    let (_sandbox, _provider, mut agent) = start_reference_adapter(&[]);
    let given = agent.call_ok(
        "aggregate",
        json!({"stream": "orders", "metric": "count", "group_by": "status"}),
    );
    assert!(
        given.text().contains("] other_count=9;"),
        "{}",
        given.text()
    );
}
