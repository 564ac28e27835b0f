//! The OpenAPI document, made from the table of routes and the samples.

use axum::response::Response;
use serde_json::{Map, Value, json};

use super::ask::json as answer_json;
use super::routes::{Access, Job, Method, ROUTES, Route};
use super::samples::{Shape, answered, wanted};

pub(super) fn answer() -> Response {
    answer_json(&document())
}

/// The whole document.
fn document() -> Value {
    let mut paths = Map::new();
    for route in &ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.name().to_ascii_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "corelane admin API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Look at a running router, change its pools, mind its dead letters and warnings.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "schemas": {
                "Error": schema(&json!({ "error": { "code": "", "message": "", "field": "" } })),
            },
        },
    })
}

fn operation(route: &Route) -> Value {
    let in_path =
        route.path.split(['{', '}']).skip(1).step_by(2).map(
            |name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }),
        );
    let in_query = route.query.iter().map(|(name, about)| {
        json!({ "name": name, "in": "query", "description": about, "schema": { "type": "string" } })
    });
    let content = match answered(route.job) {
        Shape::Text(kind) => json!({ kind: { "schema": { "type": "string" } } }),
        Shape::Json(sample) => json!({ "application/json": { "schema": schema(&sample) } }),
    };
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": route.about,
        "parameters": in_path.chain(in_query).collect::<Vec<Value>>(),
        "responses": {
            "200": { "description": "Done.", "content": content },
            "default": {
                "description": "Refused, and why.",
                "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } },
            },
        },
    });
    if !matches!(route.access, Access::Open | Access::Local) {
        operation["security"] = json!([{ "token": [] }]);
    }
    if let Some(sample) = wanted(route.job) {
        let mut shape = schema(&sample);
        if route.job == Job::Publish {
            shape = json!({ "oneOf": [shape["items"], shape] });
        }
        operation["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": shape } } });
    }
    operation
}

/// Unique, and readable in generated clients: `getApiPools`.
fn operation_id(route: &Route) -> String {
    let mut id = route.method.name().to_ascii_lowercase();
    let words = route.path.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    for word in words.filter(|word| !word.is_empty()) {
        // `/health` and `/_health` differ by the underscore alone.
        let word = word.replace('_', "plain");
        let mut letters = word.chars();
        id.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        id.push_str(letters.as_str());
    }
    if route.path == "/" && route.method == Method::Get {
        id.push_str("Dashboard");
    }
    id
}

/// The schema of values like this one.
fn schema(sample: &Value) -> Value {
    match sample {
        Value::Null => json!({}),
        Value::Bool(_) => json!({ "type": "boolean" }),
        Value::Number(number) if number.is_f64() => json!({ "type": "number" }),
        Value::Number(_) => json!({ "type": "integer" }),
        Value::String(_) => json!({ "type": "string" }),
        Value::Array(values) => json!({ "type": "array", "items": values.first().map_or(json!({}), schema) }),
        Value::Object(fields) => {
            // A key in capitals is data, such as a reason: the object is a map.
            let is_map =
                |name: &String| name.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_');
            match fields.iter().next() {
                Some((name, value)) if is_map(name) => {
                    json!({ "type": "object", "additionalProperties": schema(value) })
                }
                _ => {
                    let properties: Map<String, Value> =
                        fields.iter().map(|(name, value)| (name.clone(), schema(value))).collect();
                    json!({ "type": "object", "properties": properties })
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_route_is_in_the_document_and_nothing_else() {
        let document = document();
        let mut ids = BTreeSet::new();
        for route in &ROUTES {
            let operation = &document["paths"][route.path][route.method.name().to_ascii_lowercase()];
            assert_eq!(operation["summary"], route.about, "{} {}", route.method.name(), route.path);
            assert!(
                ids.insert(operation["operationId"].to_string()),
                "{} is there twice",
                operation["operationId"]
            );
            assert!(route.about.ends_with('.'), "{}: a sentence", route.path);
        }
        let paths = document["paths"].as_object().expect("paths");
        let count: usize = paths.values().filter_map(Value::as_object).map(Map::len).sum();
        assert_eq!(count, ROUTES.len());
    }

    #[test]
    fn every_route_is_on_the_page_for_people() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/ADMIN.md");
        let page = std::fs::read_to_string(path).expect("docs/ADMIN.md lists every route");
        for route in &ROUTES {
            let access = format!("{:?}", route.access).to_lowercase();
            let line = format!("| {} | `{}` | {access} | {} |", route.method.name(), route.path, route.about);
            assert!(page.contains(&line), "docs/ADMIN.md lacks: {line}");
        }
        let lines = page.lines().filter(|line| line.contains(" | `/")).count();
        assert_eq!(lines, ROUTES.len(), "docs/ADMIN.md lists what is gone");
    }

    #[test]
    fn whatever_changes_something_is_guarded_as_such() {
        for route in &ROUTES {
            let practice = route.path.starts_with("/api/test/");
            let changes = route.method != Method::Get && !practice;
            assert_eq!(route.access == Access::Write, changes, "{} {}", route.method.name(), route.path);
            let open = !route.path.starts_with("/api/") && route.job != Job::Metrics;
            assert_eq!(route.access == Access::Open, open, "{} {}", route.method.name(), route.path);
            let local = practice && route.job != Job::Hits;
            assert_eq!(route.access == Access::Local, local, "{} {}", route.method.name(), route.path);
        }
    }

    #[test]
    fn schemas_follow_the_types() {
        let document = document();
        let view = &document["paths"]["/api/view"]["get"]["responses"]["200"]["content"]["application/json"]
            ["schema"];
        assert_eq!(view["properties"]["pools"]["items"]["properties"]["code"]["type"], "string");
        assert_eq!(view["properties"]["leaseSlackS"]["type"], "number");
        assert_eq!(view["properties"]["deadLettersTotal"]["additionalProperties"]["type"], "integer");
        let publish = &document["paths"]["/api/messages"]["post"]["requestBody"]["content"]["application/json"]
            ["schema"];
        assert_eq!(publish["oneOf"][0]["properties"]["mediationTarget"]["type"], "string");
    }
}
