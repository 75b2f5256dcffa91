//! Generation of the OpenAPI 3.1 document from the operation table.

use aide::openapi::{
    Components, Contact, HeaderStyle, Info, License, MediaType, OpenApi, Operation, Parameter,
    ParameterData, ParameterSchemaOrContent, PathItem, Paths, QueryStyle, ReferenceOr, RequestBody,
    Response, Responses, SchemaObject, SecurityScheme, Server, StatusCode,
};
use indexmap::IndexMap;
use serde_json::{Value, json};

use super::{AccessRule, HttpMethod, OperationEntry, OperationTable, oauth2, v1, v2};

/// The error statuses that every operation may return, unless its version says otherwise.
pub const COMMON_ERRORS: &[(u16, &str)] = &[
    (400, "The request is invalid; `errors` lists every field error."),
    (401, "The root key is missing, malformed, unknown, revoked or expired."),
    (403, "The root key lacks a permission; `detail` names it."),
    (404, "A resource that the request names does not exist."),
    (409, "A resource with this name already exists."),
    (410, "A resource that the request names has been deleted."),
    (412, "The current state does not allow the operation."),
    (413, "The request body is too large."),
    (500, "An internal server error occurred."),
    (503, "A dependency of the server is unavailable."),
];

const BEARER_SCHEME: &str = "rootKey";
const BASIC_SCHEME: &str = "rootKeyAsPassword";

/// Builds the document of version 1. `server` is the base URL of the API.
pub fn v1_document(server: &str) -> OpenApi {
    build_document(&[v1::operation_table()], server)
}

/// Builds the document of version 2 and of the OAuth endpoints. `server` is the base URL of the API.
pub fn v2_document(server: &str) -> OpenApi {
    build_document(&[v2::operation_table(), oauth2::operation_table()], server)
}

fn build_document(tables: &[OperationTable], server: &str) -> OpenApi {
    let rows = tables.iter().flat_map(|table| table.operations.iter().map(move |row| (table, row)));
    let paths = rows.map(|(table, row)| {
        let path = format!("{}{}", table.prefix, row.name);
        let operation = Some(build_operation(table, row));
        let item = match row.method {
            HttpMethod::Get => PathItem { get: operation, ..PathItem::default() },
            HttpMethod::Post => PathItem { post: operation, ..PathItem::default() },
        };
        (path, ReferenceOr::Item(item))
    });
    let schemas = tables.iter().map(|table| {
        (table.failure_schema_name.to_owned(), to_schema_object((table.failure_schema)()))
    });
    OpenApi {
        info: Info {
            title: "Keyward".into(),
            description: Some("Issues API keys, verifies them and counts their use.".into()),
            version: env!("CARGO_PKG_VERSION").into(),
            contact: None::<Contact>,
            license: Some(License {
                name: "Apache-2.0 OR MIT".into(),
                identifier: Some("Apache-2.0 OR MIT".into()),
                ..License::default()
            }),
            ..Info::default()
        },
        servers: vec![Server { url: server.into(), ..Server::default() }],
        paths: Some(Paths { paths: paths.collect(), ..Paths::default() }),
        components: Some(Components {
            security_schemes: security_schemes(tables),
            schemas: schemas.collect(),
            ..Components::default()
        }),
        security: vec![require_scheme(BEARER_SCHEME)],
        ..OpenApi::default()
    }
}

fn security_schemes(tables: &[OperationTable]) -> IndexMap<String, ReferenceOr<SecurityScheme>> {
    let bearer = SecurityScheme::Http {
        scheme: "bearer".into(),
        bearer_format: Some("root key".into()),
        description: Some("A root key. Each operation lists its required permissions.".into()),
        extensions: IndexMap::default(),
    };
    let mut schemes = IndexMap::from_iter([(BEARER_SCHEME.to_owned(), ReferenceOr::Item(bearer))]);
    if tables.iter().any(|table| table.accepts_basic) {
        let basic = SecurityScheme::Http {
            scheme: "basic".into(),
            bearer_format: None,
            description: Some("A root key as the password, with any user name.".into()),
            extensions: IndexMap::default(),
        };
        schemes.insert(BASIC_SCHEME.to_owned(), ReferenceOr::Item(basic));
    }
    schemes
}

fn require_scheme(name: &str) -> IndexMap<String, Vec<String>> {
    IndexMap::from_iter([(name.to_owned(), Vec::new())])
}

fn build_operation(table: &OperationTable, row: &OperationEntry) -> Operation {
    let mut request = (row.request)().to_value();
    let documentation = remove_text(&mut request, "description");
    let (summary, description) = match documentation.split_once("\n\n") {
        Some((summary, rest)) => (summary.to_owned(), rest.to_owned()),
        None => (documentation, String::new()),
    };
    Operation {
        operation_id: Some(row.name.replace('.', "_")),
        tags: row.name.split('.').take(1).map(str::to_owned).collect(),
        summary: Some(summary.trim_end_matches('.').to_owned()),
        description: Some(format!("{description}\n\n{}", access_text(row)).trim().to_owned()),
        parameters: build_parameters(&request, row),
        request_body: if row.method == HttpMethod::Post {
            Some(build_request_body(table, request, row))
        } else {
            None
        },
        security: build_security(table, row),
        responses: Some(build_responses(table, row)),
        ..Operation::default()
    }
}

/// Returns what differs from the root key that the document requires by default.
fn build_security(
    table: &OperationTable,
    row: &OperationEntry,
) -> Vec<IndexMap<String, Vec<String>>> {
    match row.access {
        AccessRule::NoRootKey => vec![IndexMap::default()],
        AccessRule::Permission(_) | AccessRule::HiddenUnlessPermitted(_) if table.accepts_basic => {
            vec![require_scheme(BEARER_SCHEME), require_scheme(BASIC_SCHEME)]
        }
        AccessRule::Permission(_) | AccessRule::HiddenUnlessPermitted(_) => Vec::new(),
    }
}

fn build_request_body(
    table: &OperationTable,
    request: Value,
    row: &OperationEntry,
) -> ReferenceOr<RequestBody> {
    let body = MediaType {
        schema: Some(to_schema_object(to_embedded_schema(request))),
        example: Some((row.example)()),
        ..MediaType::default()
    };
    ReferenceOr::Item(RequestBody {
        content: IndexMap::from_iter([(table.body_encoding.media_type().to_owned(), body)]),
        required: true,
        ..RequestBody::default()
    })
}

/// Builds the parameters: the query fields of a GET operation, or the headers of a POST operation.
fn build_parameters(request: &Value, row: &OperationEntry) -> Vec<ReferenceOr<Parameter>> {
    match row.method {
        HttpMethod::Get => query_parameters(request, row),
        HttpMethod::Post if row.accepts_idempotency_key => vec![idempotency_key_parameter()],
        HttpMethod::Post => Vec::new(),
    }
}

fn idempotency_key_parameter() -> ReferenceOr<Parameter> {
    let data = ParameterData {
        name: "Idempotency-Key".into(),
        description: Some(
            "Your unique key for this request. The same request with the same key runs once and \
            receives the same reply for 24 hours."
                .into(),
        ),
        required: false,
        deprecated: None,
        format: ParameterSchemaOrContent::Schema(to_schema_object(
            json!({ "type": "string", "minLength": 1, "maxLength": 255 }),
        )),
        example: None,
        examples: IndexMap::default(),
        explode: None,
        extensions: IndexMap::default(),
    };
    ReferenceOr::Item(Parameter::Header { parameter_data: data, style: HeaderStyle::Simple })
}

/// Converts the fields of a request to query parameters.
fn query_parameters(request: &Value, row: &OperationEntry) -> Vec<ReferenceOr<Parameter>> {
    let (example, required) = ((row.example)(), &request["required"]);
    let fields = request["properties"].as_object().into_iter().flatten();
    let parameter = |(name, field): (&String, &Value)| {
        let mut field = field.clone();
        let description = remove_text(&mut field, "description");
        let data = ParameterData {
            name: name.clone(),
            description: Some(description).filter(|text| !text.is_empty()),
            required: required.as_array().is_some_and(|names| names.contains(&json!(name))),
            deprecated: None,
            format: ParameterSchemaOrContent::Schema(to_schema_object(field)),
            example: example.get(name).cloned(),
            examples: IndexMap::default(),
            explode: None,
            extensions: IndexMap::default(),
        };
        ReferenceOr::Item(Parameter::Query {
            parameter_data: data,
            allow_reserved: false,
            style: QueryStyle::Form,
            allow_empty_value: None,
        })
    };
    fields.map(parameter).collect()
}

fn access_text(row: &OperationEntry) -> String {
    let names =
        row.access.actions().iter().map(|action| format!("`{}`", action.to_wildcard_tuple()));
    let names: Vec<_> = names.collect();
    let permissions = match names.as_slice() {
        [one] => format!("the permission {one}"),
        several => format!("the permissions {}", several.join(" and ")),
    };
    match row.access {
        AccessRule::NoRootKey => "Requires no root key.".to_owned(),
        AccessRule::Permission(_) => format!("Requires {permissions}."),
        AccessRule::HiddenUnlessPermitted(_) => {
            format!("Requires {permissions}; otherwise, the resource is reported as not found.")
        }
    }
}

fn build_responses(table: &OperationTable, row: &OperationEntry) -> Responses {
    let success = build_response("Success.", "application/json", (table.success_schema)(row));
    let mut responses = IndexMap::from_iter([(StatusCode::Code(row.status), success)]);
    for (status, text) in table.errors.iter().chain(row.errors) {
        let schema = format!("#/components/schemas/{}", table.failure_schema_name);
        let error = json!({ "$ref": schema });
        let is_problem = row.uses_problem_json || *status == 429;
        let media_type = if is_problem { "application/problem+json" } else { "application/json" };
        responses.insert(StatusCode::Code(*status), build_response(text, media_type, error));
    }
    Responses { responses, ..Responses::default() }
}

fn build_response(text: &str, media_type: &str, body: Value) -> ReferenceOr<Response> {
    let body = MediaType { schema: Some(to_schema_object(body)), ..MediaType::default() };
    ReferenceOr::Item(Response {
        description: text.into(),
        content: IndexMap::from_iter([(media_type.to_owned(), body)]),
        ..Response::default()
    })
}

/// Prepares a schema for embedding: removes the fields that only a standalone schema document has.
pub fn to_embedded_schema(mut schema: Value) -> Value {
    remove_text(&mut schema, "$schema");
    remove_text(&mut schema, "title");
    schema
}

fn remove_text(schema: &mut Value, name: &str) -> String {
    let removed = schema.as_object_mut().and_then(|object| object.remove(name));
    removed.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Converts a JSON schema to the type of the OpenAPI document.
fn to_schema_object(schema: Value) -> SchemaObject {
    serde_json::from_value(schema).expect("a schema is an object or a boolean")
}
