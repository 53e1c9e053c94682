//! `cargo xtask ec2-model FILE`: cuts the public service model of EC2 or of Auto Scaling down to
//! the actions that `srd-control` serves.
//!
//! The input is `ec2/2016-11-15/service-2.json.gz` or `autoscaling/2011-01-01/service-2.json.gz` of
//! botocore. The cut contains the shapes that the actions in `crates/srd-control/model/actions.txt`
//! or `autoscaling.txt` reach, without documentation, and the names of all actions of the model.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use flate2::read::GzDecoder;
use serde_json::{Map, Value, json};

/// Largest model that is read, unpacked.
const BYTES_MAX: u64 = 64 << 20;
/// A list of values that is longer is left out, and any value of it is accepted.
const VALUES_MAX: usize = 60;
/// Members of structures and lists that the cut keeps.
const MEMBER_KEYS: [&str; 3] = ["shape", "locationName", "queryName"];
/// Keys of shapes that the cut keeps as they are.
const SHAPE_KEYS: [&str; 3] = ["type", "required", "enum"];

/// Writes `ec2.json` or `autoscaling.json` beside the list of actions.
pub(super) fn run(root: &Path, model: &Path) -> Result<()> {
    let folder = root.join("crates/srd-control/model");
    let mut text = String::new();
    let file = File::open(model).with_context(|| format!("cannot open {}", model.display()))?;
    let read = GzDecoder::new(file).take(BYTES_MAX + 1).read_to_string(&mut text);
    let bytes = read.with_context(|| format!("{} is no text in gzip", model.display()))?;
    ensure!(bytes as u64 <= BYTES_MAX, "{} has more than {BYTES_MAX} bytes", model.display());
    let model: Value = serde_json::from_str(&text).context("this is no service model")?;
    let [list, target] = match model["metadata"]["endpointPrefix"].as_str() {
        Some("ec2") => ["actions.txt", "ec2.json"],
        Some("autoscaling") => ["autoscaling.txt", "autoscaling.json"],
        _ => bail!("this is no model of EC2 or Auto Scaling"),
    };
    let actions = fs::read_to_string(folder.join(list))?;
    let actions: Vec<&str> = actions.lines().filter(|line| !line.is_empty()).collect();
    let cut = cut(&model, &actions)?;
    fs::write(folder.join(target), format!("{cut}\n"))?;
    println!("{} actions, {} shapes", actions.len(), cut["shapes"].as_object().map_or(0, Map::len));
    Ok(())
}

fn cut(model: &Value, actions: &[&str]) -> Result<Value> {
    let protocol = model["metadata"]["protocol"].as_str().unwrap_or_default();
    ensure!(["ec2", "query"].contains(&protocol), "the protocol of the model is not supported");
    let all = model["operations"].as_object().context("the model has no operations")?;
    let names: Vec<&String> = all.keys().collect();
    let (mut operations, mut shapes) = (BTreeMap::new(), BTreeMap::new());
    for &action in actions {
        let Some(operation) = all.get(action) else { bail!("{action} is not in the model") };
        let mut kept = Map::new();
        for side in ["input", "output"] {
            if let Some(shape) = operation[side]["shape"].as_str() {
                kept.insert(side.to_owned(), json!(shape));
                reach(&model["shapes"], shape, &mut shapes)?;
            }
        }
        operations.insert(action, Value::Object(kept));
    }
    let version = &model["metadata"]["apiVersion"];
    let mut cut =
        json!({"version": version, "names": names, "operations": operations, "shapes": shapes});
    if protocol == "query" {
        cut["protocol"] = protocol.into();
        cut["namespace"] = model["metadata"]["xmlNamespace"].clone();
    }
    Ok(cut)
}

/// Adds a shape, and all shapes that it reaches.
fn reach(all: &Value, name: &str, shapes: &mut BTreeMap<String, Value>) -> Result<()> {
    if shapes.contains_key(name) {
        return Ok(());
    }
    let shape = all.get(name).with_context(|| format!("shape {name} is not in the model"))?;
    let mut kept = Map::new();
    for key in SHAPE_KEYS {
        let values = shape[key].as_array().map_or(0, Vec::len);
        if !shape[key].is_null() && (key != "enum" || values <= VALUES_MAX) {
            kept.insert(key.to_owned(), shape[key].clone());
        }
    }
    shapes.insert(name.to_owned(), Value::Null);
    let member = |of: &Value| -> Value {
        let keys = MEMBER_KEYS.iter().filter(|key| !of[**key].is_null());
        keys.map(|key| ((*key).to_owned(), of[*key].clone())).collect::<Map<_, _>>().into()
    };
    if let Some(members) = shape["members"].as_object() {
        let mut cut = Map::new();
        for (member_name, of) in members {
            reach(all, of["shape"].as_str().unwrap_or_default(), shapes)?;
            cut.insert(member_name.clone(), member(of));
        }
        kept.insert("members".to_owned(), cut.into());
    }
    if let Some(inner) = shape["member"]["shape"].as_str() {
        reach(all, inner, shapes)?;
        kept.insert("member".to_owned(), member(&shape["member"]));
    }
    shapes.insert(name.to_owned(), kept.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_has_the_shapes_of_its_actions_and_the_names_of_all() {
        let model = json!({
            "metadata": {"protocol": "ec2", "apiVersion": "2016-11-15"},
            "operations": {
                "MakeA": {"input": {"shape": "A"}, "documentation": "long"},
                "MakeB": {"input": {"shape": "B"}},
            },
            "shapes": {
                "A": {"type": "structure", "required": ["L"], "documentation": "long",
                      "members": {"L": {"shape": "L", "locationName": "l", "documentation": "x"}}},
                "L": {"type": "list", "member": {"shape": "A", "locationName": "item"}},
                "B": {"type": "structure", "members": {}},
            },
        });
        let cut = cut(&model, &["MakeA"]).unwrap();
        assert_eq!(cut["names"], json!(["MakeA", "MakeB"]));
        assert_eq!(cut["operations"], json!({"MakeA": {"input": "A"}}));
        let member = json!({"L": {"shape": "L", "locationName": "l"}});
        let a = json!({"type": "structure", "required": ["L"], "members": member});
        let list = json!({"type": "list", "member": {"shape": "A", "locationName": "item"}});
        assert_eq!(cut["shapes"], json!({"A": a, "L": list}));
        assert!(super::cut(&model, &["MakeC"]).is_err());
        let mut query = model.clone();
        query["metadata"]["protocol"] = "query".into();
        query["metadata"]["xmlNamespace"] = "http://example".into();
        let cut = super::cut(&query, &["MakeA"]).unwrap();
        assert_eq!(
            (&cut["protocol"], &cut["namespace"]),
            (&json!("query"), &json!("http://example"))
        );
        query["metadata"]["protocol"] = "rest-json".into();
        assert!(super::cut(&query, &["MakeA"]).is_err());
    }
}
