//! `envoy.service.auth.v3.Authorization/Check`: judges the requests that Envoy receives, by a gateway policy.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;

use api::gateway::{
    self, GatewayAnswer, Header, bearer_token, cookie, non_empty, non_empty_secret, path_of,
    query_of, query_parameter,
};
use domain::app::App;
use domain::caller::ClientInfo;
use domain::gateways::{self, Credential, GatewayIdentity, OriginalRequest};
use envoy_types::ext_authz::v3::pb::{
    Address, Authorization, CheckRequest, CheckResponse, DeniedHttpResponse, HeaderAppendAction,
    HeaderValue, HeaderValueOption, HttpResponse, HttpStatus, OkHttpResponse,
};
use envoy_types::pb::envoy::config::core::v3::HeaderMap;
use envoy_types::pb::envoy::service::auth::v3::attribute_context::HttpRequest;
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Struct, Value};
use envoy_types::pb::google::rpc;
use foundation::error::Result;
use foundation::id::RequestId;
use foundation::metrics::Requests;
use foundation::model::KeySource;
use foundation::traces;
use request::address;
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Response, Status};

use crate::POLICY;

/// The prefix of the headers that tell the upstream who calls.
const IDENTITY_PREFIX: &str = "keyward-";

/// The service.
pub struct ExtAuthz {
    app: Arc<App>,
    requests: Requests,
}

impl ExtAuthz {
    pub fn new(app: Arc<App>) -> Self {
        let requests = app.context.metrics.requests_for_operation("none", "gateway.check");
        Self { app, requests }
    }
}

#[tonic::async_trait]
impl Authorization for ExtAuthz {
    async fn check(
        &self,
        request: Request<CheckRequest>,
    ) -> std::result::Result<Response<CheckResponse>, Status> {
        let request_id = RequestId::new(self.app.context.clock.now());
        traces::request_id(&request_id);
        let (metadata, _, check) = request.into_parts();
        let answer = pin!(answer(&self.app, &metadata, &check, request_id));
        let answer = gateway::answer_within_bounds(answer, &request_id).await;
        self.requests.record_status(answer.status);
        Ok(Response::new(to_response(answer, &check)))
    }
}

async fn answer(
    app: &App,
    metadata: &MetadataMap,
    check: &CheckRequest,
    request_id: RequestId,
) -> Result<GatewayAnswer> {
    let attributes = check.attributes.as_ref();
    let told = |name: &str| {
        let extension = attributes.and_then(|context| context.context_extensions.get(name));
        extension.map(String::as_bytes).or_else(|| Some(metadata.get(name)?.as_bytes()))
    };
    let named =
        told(POLICY.as_str()).and_then(|name| std::str::from_utf8(name).ok()).unwrap_or_default();
    let gateway = GatewayIdentity {
        policy: Some(named),
        secret: non_empty_secret(told(gateway::SECRET_HEADER.as_str())),
        peer: address::peer(),
    };
    let policy = gateways::authenticate(&app.gateways, &gateway).await?;
    let empty = HttpRequest::default();
    let request = EnvoyRequest::new(http_request(check).unwrap_or(&empty));
    let client = ClientInfo { address: client_address(app, check, &request), user_agent: None };
    Ok(gateway::judge(app, &policy, &request, client, request_id).await)
}

fn http_request(check: &CheckRequest) -> Option<&HttpRequest> {
    check.attributes.as_ref()?.request.as_ref()?.http.as_ref()
}

/// Returns the address of the client. Envoy tells the peer of its connection, whichever proxies it trusts itself, and the header
/// in which proxies before it report their peers.
fn client_address(app: &App, check: &CheckRequest, request: &EnvoyRequest<'_>) -> Option<IpAddr> {
    let trusted = app.context.settings.trusted_proxies.as_ref();
    let values = || request.header_values(address::FORWARDED_FOR);
    Some(address::address_behind(source_address(check)?, trusted, values))
}

/// Returns the address of the peer of Envoy's connection.
fn source_address(check: &CheckRequest) -> Option<IpAddr> {
    let address = check.attributes.as_ref()?.source.as_ref()?.address.as_ref()?;
    match address.address.as_ref()? {
        Address::SocketAddress(socket) => {
            socket.address.parse().ok().map(|address: IpAddr| address.to_canonical())
        }
        Address::Pipe(_) | Address::EnvoyInternalAddress(_) => None,
    }
}

/// A request as Envoy tells it.
struct EnvoyRequest<'a> {
    http: &'a HttpRequest,
    /// The headers, if Envoy sends them with their repetitions.
    header_map: Option<&'a HeaderMap>,
}

impl<'a> EnvoyRequest<'a> {
    fn new(http: &'a HttpRequest) -> Self {
        Self { http, header_map: http.header_map.as_ref() }
    }

    /// Returns the values of a header that are texts, by its name in lower case.
    fn headers(&self, name: &str) -> impl Iterator<Item = &'a str> {
        self.header_values(name).filter_map(|value| str::from_utf8(value).ok())
    }

    /// Returns the values of a header, by its name in lower case.
    fn header_values(&self, name: &str) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        let joined = self.http.headers.get(name).map(String::as_bytes);
        let repeated = self.header_map.into_iter().flat_map(|map| &map.headers);
        let repeated = repeated.filter(|header| header.key == name).map(value_of);
        // One of the two is empty.
        joined.into_iter().chain(repeated.collect::<Vec<_>>())
    }

    /// Returns the names of all headers.
    fn header_names(&self) -> impl Iterator<Item = &'a str> {
        let repeated = self.header_map.into_iter().flat_map(|map| &map.headers);
        let names = self.http.headers.keys().chain(repeated.map(|header| &header.key));
        names.map(String::as_str)
    }
}

/// Envoy sends a value as text or, as configured, as bytes.
fn value_of(header: &HeaderValue) -> &[u8] {
    match header.raw_value.is_empty() {
        true => header.value.as_bytes(),
        false => header.raw_value.as_slice(),
    }
}

impl OriginalRequest for EnvoyRequest<'_> {
    fn method(&self) -> Option<&str> {
        Some(self.http.method.as_str()).filter(|method| !method.is_empty())
    }

    fn path(&self) -> Option<&str> {
        Some(path_of(&self.http.path)).filter(|path| !path.is_empty())
    }

    fn credential(&self, source: &KeySource) -> Option<Credential<'_>> {
        match source {
            KeySource::Bearer => self.headers("authorization").find_map(bearer_token),
            KeySource::Header(name) => self.headers(name).find_map(non_empty),
            KeySource::Query(name) => query_parameter(query_of(&self.http.path), name),
            KeySource::Cookie(name) => {
                self.headers("cookie").find_map(|header| cookie(header, name))
            }
        }
    }
}

fn to_response(mut answer: GatewayAnswer, check: &CheckRequest) -> CheckResponse {
    let identity_headers = answer.take_identity_headers();
    let GatewayAnswer { status, headers, body, .. } = answer;
    if status == 200 {
        let names = http_request(check).map(EnvoyRequest::new);
        let names = names.iter().flat_map(EnvoyRequest::header_names);
        let is_ours = |name: &str| identity_headers.iter().any(|(ours, _)| ours == name);
        let spoofed = names
            .filter(|name| is_identity_header(name) && !is_ours(name))
            .map(str::to_owned)
            .collect();
        let dynamic_metadata = Some(to_metadata(&identity_headers));
        let response = OkHttpResponse {
            headers: to_options(identity_headers),
            headers_to_remove: spoofed,
            response_headers_to_add: to_options(headers),
            ..OkHttpResponse::default()
        };
        return CheckResponse {
            status: Some(rpc::Status { code: Code::Ok.into(), ..rpc::Status::default() }),
            dynamic_metadata,
            http_response: Some(HttpResponse::OkResponse(response)),
        };
    }
    let mut headers = to_options(headers);
    let body = body.map_or_else(String::new, |body| {
        headers.push(to_option("content-type".to_owned(), body.media_type.to_owned()));
        body.text
    });
    let response =
        DeniedHttpResponse { status: Some(HttpStatus { code: status.into() }), headers, body };
    CheckResponse {
        status: Some(rpc::Status { code: grpc_code(status).into(), ..rpc::Status::default() }),
        dynamic_metadata: None,
        http_response: Some(HttpResponse::DeniedResponse(response)),
    }
}

/// Returns the code of gRPC that stands for an HTTP status.
fn grpc_code(status: u16) -> Code {
    match status {
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        429 => Code::ResourceExhausted,
        503 => Code::Unavailable,
        _ => Code::Internal,
    }
}

fn to_options(headers: Vec<Header>) -> Vec<HeaderValueOption> {
    headers.into_iter().map(|(name, value)| to_option(name.as_str().to_owned(), value)).collect()
}

/// Returns whether an upstream may take a header for one of Keyward's: CGI and WSGI do not tell `keyward_key_id` from
/// `keyward-key-id`.
fn is_identity_header(name: &str) -> bool {
    let rest = name.strip_prefix("keyward");
    rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
}

/// Replaces what the client has sent, even by an empty value.
fn to_option(key: String, value: String) -> HeaderValueOption {
    HeaderValueOption {
        header: Some(HeaderValue { key, value, raw_value: Vec::new() }),
        append_action: HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
        keep_empty_value: true,
        ..HeaderValueOption::default()
    }
}

/// Returns the headers that have a value as fields of the object `keyward`: `keyward-key-id` as `keyId`.
fn to_metadata(headers: &[Header]) -> Struct {
    let text = |text: &str| Value { kind: Some(Kind::StringValue(text.to_owned())) };
    let fields: HashMap<_, _> = headers
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| (to_camel_case(name.as_str()), text(value)))
        .collect();
    let keyward = Value { kind: Some(Kind::StructValue(Struct { fields })) };
    Struct { fields: HashMap::from([("keyward".to_owned(), keyward)]) }
}

fn to_camel_case(header: &str) -> String {
    let name = header.strip_prefix(IDENTITY_PREFIX).unwrap_or(header);
    let mut words = name.split('-').map(Cow::Borrowed);
    let first = words.next().unwrap_or_default();
    let capitalized = words.map(|word| {
        let mut letters = word.chars();
        let first = letters.next().map(|first| first.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    });
    first.into_owned() + &capitalized.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_headers_are_found_whatever_separates_their_words() {
        for name in ["keyward-key-id", "keyward_key_id", "keyward.key.id", "keyward"] {
            assert!(is_identity_header(name), "{name}");
        }
        for name in ["keywards-key", "keyward2", "x-keyward-key-id"] {
            assert!(!is_identity_header(name), "{name}");
        }
    }

    #[test]
    fn header_becomes_a_name_in_camel_case() {
        for (header, name) in [
            ("keyward-key-id", "keyId"),
            ("keyward-roles", "roles"),
            ("keyward-meta-plan", "metaPlan"),
        ] {
            assert_eq!(to_camel_case(header), name);
        }
    }
}
