use super::*;

/// A regression: the parameters and answers that are stored for client tokens used memory
/// without a limit.
#[test]
fn answers_to_client_tokens_are_bounded_by_their_bytes() {
    let mut region = Region::empty("1", "us-east-1", IdGenerator::new(1));
    let id = |token: &str| format!("token/CreateVpc/{token}");
    let hash = || "hash".to_owned();
    for (at, token) in [(1, "a"), (2, "b"), (3, "c")] {
        region.now = at;
        remember(&mut region, id(token), hash(), json!({"Return": true}));
    }
    if let Some(used) = region.tokens.get_mut(&id("c")) {
        used.bytes = TOKEN_ANSWERS_MAX - 40;
    }
    remember(&mut region, id("d"), hash(), json!({"Return": true}));
    let left: Vec<&str> = region.tokens.iter().map(|used| used.id.as_str()).collect();
    assert_eq!(left, [id("b"), id("c"), id("d")]);
    region.now = 3 + TOKEN_S;
    remember(&mut region, id("e"), hash(), json!({}));
    assert_eq!(region.tokens.len(), 1);
}

/// An action whose answer does not fit the model.
fn misfit(region: &mut Region, _: &Request) -> ApiResult<Value> {
    let vpcs = region.vpcs.ids_where(|_| true);
    vpcs.iter().for_each(|id| drop(region.vpcs.remove(id)));
    Ok(json!({"Vpcs": [{"VpcId": 5}]}))
}

/// A regression: an answer that could not be written reported an error for a change that was
/// made.
#[test]
fn an_answer_that_cannot_be_written_changes_nothing() {
    let store = Box::new(crate::store::MemoryStore::default());
    let machines = Box::new(machines::NoMachines);
    let mut control = Control::new(Access::AnyCredentials, 1, store, machines).unwrap();
    let at = ("1".to_owned(), "us-east-1".to_owned());
    let mut region = Region::empty(&at.0, &at.1, IdGenerator::new(1));
    defaults::populate(&mut region);
    control.cloud.regions.insert(at.clone(), region);
    assert!(control.commit().is_ok());
    let request = Request { action: "DescribeVpcs".to_owned(), parameters: Default::default() };
    let action = actions::Handler::Region(misfit);
    let call = Call { model: model(), action, request: &request, at: &at, request_id: "r" };
    let result = control.run(call);
    assert!(matches!(result, Err(Failure::Api(error)) if error.status == 500));
    control.recover();
    assert_eq!(control.cloud.regions[&at].vpcs.len(), 1);
    let stored = control.store.load().unwrap();
    assert!(stored.iter().any(|(key, _)| key.contains("/vpc-")));
}
