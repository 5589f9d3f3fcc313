//! The laws of encodings: what is encoded is decoded as the same value, and bytes are in the order of values.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use proptest::prelude::*;
use rung_edn::{BigDecimal, BigInt, BigRational, Name, Value};
use rung_kv::encode::{decode, decode_part, encode, encode_part};

/// Values of one kind, in which the order of bytes is that of the values.
fn kinds() -> Vec<BoxedStrategy<Value>> {
    let name = || "([a-c]{1,2}/)?[a-c.]{1,3}".prop_map(Name::new);
    let text = prop_oneof!["[a-c\u{0}]{0,4}", any::<String>()];
    vec![
        any::<bool>().prop_map(Value::Bool).boxed(),
        prop_oneof![
            any::<i64>().prop_map(Value::Long),
            (-3_i64..3).prop_map(Value::Long),
            any::<i128>().prop_map(|number| Value::BigInt(Arc::new(number.into()))),
            any::<i64>().prop_map(|number| Value::BigInt(Arc::new(
                BigInt::from(number) * BigInt::from(i64::MAX)
            ))),
        ]
        .boxed(),
        (any::<i64>(), -9_i64..9)
            .prop_map(|(digits, scale)| {
                Value::BigDec(Arc::new(BigDecimal::new(digits.into(), scale)))
            })
            .boxed(),
        (-30_i64..30, -3_i64..3)
            .prop_map(|(digits, scale)| {
                Value::BigDec(Arc::new(BigDecimal::new(digits.into(), scale)))
            })
            .boxed(),
        any::<f64>().prop_map(Value::Double).boxed(),
        any::<f32>().prop_map(Value::Float).boxed(),
        any::<char>().prop_map(Value::Char).boxed(),
        text.prop_map(Value::text).boxed(),
        name().prop_map(Value::Keyword).boxed(),
        name().prop_map(Value::Symbol).boxed(),
        any::<i64>().prop_map(Value::Instant).boxed(),
        any::<u128>().prop_map(Value::Uuid).boxed(),
        prop::collection::vec(0_u8..3, 0..4)
            .prop_map(|bytes| Value::Bytes(bytes.into()))
            .boxed(),
    ]
}

fn pairs() -> impl Strategy<Value = (Value, Value)> {
    let each = kinds().into_iter().map(|kind| (kind.clone(), kind).boxed());
    proptest::strategy::Union::new(each)
}

fn values() -> impl Strategy<Value = Value> {
    let ratio = (any::<i64>(), 2..i64::MAX).prop_map(|(over, under)| {
        Value::Ratio(Arc::new(BigRational::new(over.into(), under.into())))
    });
    let scalar = proptest::strategy::Union::new(
        kinds()
            .into_iter()
            .chain([ratio.boxed(), Just(Value::Nil).boxed()]),
    );
    scalar.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Vector),
            prop::collection::vec((inner.clone(), inner.clone()), 0..4)
                .prop_map(|members| Value::Map(members.into_iter().collect())),
            prop::collection::vec(inner.clone(), 0..4)
                .prop_map(|members| Value::Set(members.into_iter().collect())),
            ("[a-z]{1,3}", inner)
                .prop_map(|(tag, value)| Value::Tagged(Name::new(tag), Box::new(value))),
        ]
    })
}

fn part(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_part(value, &mut bytes);
    bytes
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(value in values()) {
        prop_assert_eq!(&decode(&encode(&value)).unwrap(), &value);
        prop_assert_eq!(&decode_part(&part(&value)).unwrap(), &value);
    }

    #[test]
    fn bytes_are_in_the_order_of_values((one, other) in pairs()) {
        prop_assert_eq!(encode(&one).cmp(&encode(&other)), one.cmp(&other), "{} {}", one, other);
        prop_assert_eq!(part(&one).cmp(&part(&other)), one.cmp(&other), "{} {}", one, other);
    }

    #[test]
    fn tuples_are_in_the_order_of_their_parts((a, b) in pairs(), (c, d) in pairs()) {
        let (one, other) = (Value::Vector(vec![a, c]), Value::Vector(vec![b, d]));
        prop_assert_eq!(encode(&one).cmp(&encode(&other)), one.cmp(&other));
        let shorter = Value::Vector(one.as_sequence().unwrap()[..1].to_vec());
        prop_assert!(encode(&shorter) < encode(&one));
    }

    #[test]
    fn no_part_is_the_beginning_of_another(one in values(), other in values()) {
        let (one_bytes, other_bytes) = (part(&one), part(&other));
        prop_assert!(!other_bytes.starts_with(&one_bytes) || one_bytes == other_bytes, "{} {}", one, other);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(prop_oneof![0_u8..0x60, any::<u8>()], 0..40)) {
        let _decoded = decode(&bytes);
        let _taken = decode_part(&bytes);
    }
}
