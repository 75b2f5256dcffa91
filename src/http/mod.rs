//! The HTTP server: its paths. Listeners and shutdown are in `connections`.

mod certificate;
mod connection_timer;
mod connections;
mod openapi;
mod protocols;
mod request_queue;
mod request_span;
mod security_txt;

use std::collections::HashMap;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use api::well_known::{jwks, protected_resource};
use api::{Endpoint, HttpMethod, ReplyFuture, Version as _, gateway, reply};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::header::{ACCEPT, ALLOW, CONTENT_TYPE, LOCATION, VARY};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri};
use axum::response::IntoResponse as _;
use axum::routing::get;
pub use certificate::{renew_certificate, report_certificate};
pub use connections::{serve, serve_grpc, serve_metrics};
use dashboard::Dashboard;
use domain::app::App;
use domain::health;
use foundation::error::{Code, Error};
use foundation::id::RequestId;
use foundation::traces;
use futures_util::FutureExt as _;
use serde_json::json;
use tower::Service as _;

/// Routes requests: operations by a hash map, other paths by a router. Finding an operation is one map lookup; a router
/// with its layers of futures would take a tenth of the time of a verification.
#[derive(Clone)]
pub struct HttpService {
    operations: Arc<HashMap<String, Route>>,
    router: Router,
    dashboard: Dashboard,
    gateway_endpoint: Arc<Endpoint>,
    fallback_endpoint: Arc<Endpoint>,
}

/// The handler of an operation's path.
struct Route {
    verb: HttpMethod,
    call: fn(Arc<Endpoint>, Request) -> ReplyFuture,
    endpoint: Arc<Endpoint>,
}

impl Route {
    fn accepts_method(&self, method: &Method) -> bool {
        match self.verb {
            HttpMethod::Post => *method == Method::POST,
            // hyper sends only the head of the response to HEAD.
            HttpMethod::Get => *method == Method::GET || *method == Method::HEAD,
        }
    }
}

/// The metric labels of paths that are not operations.
const OTHER: &str = "other";
const NO_VERSION: &str = "none";

impl HttpService {
    pub fn new(app: Arc<App>) -> Self {
        let endpoint = |version, name| {
            let requests = app.context.metrics.requests_for_operation(version, name);
            Arc::new(Endpoint { app: app.clone(), requests })
        };
        let mut operations = HashMap::new();
        let tables = [
            api::v1::operation_table(),
            api::v2::operation_table(),
            api::oauth2::operation_table(),
        ];
        for table in tables {
            for row in table.operations {
                let path = format!("{}{}", table.prefix, row.name);
                let endpoint = endpoint(table.prefix.trim_matches('/'), row.name);
                operations.insert(path, Route { verb: row.method, call: row.handler, endpoint });
            }
        }
        let operations = Arc::new(operations);
        let other = endpoint(NO_VERSION, OTHER);
        let dashboard = Dashboard::new(app.clone());
        let gateway_endpoint = endpoint(NO_VERSION, "gateway");
        Self {
            operations,
            router: build_router(app),
            dashboard,
            gateway_endpoint,
            fallback_endpoint: other,
        }
    }

    pub fn answer(&self, request: Request) -> ReplyFuture {
        if traces::is_enabled() { self.traced(request) } else { self.routed(request) }
    }

    fn routed(&self, request: Request) -> ReplyFuture {
        let operation = self.operations.get(request.uri().path());
        match operation {
            Some(operation) if operation.accepts_method(request.method()) => {
                (operation.call)(operation.endpoint.clone(), request)
            }
            None if request.uri().path().starts_with(gateway::PREFIX) => {
                gateway::handle_request(self.gateway_endpoint.clone(), request)
            }
            _ => self.route_fallback(operation, request),
        }
    }

    fn route_fallback(&self, operation: Option<&Route>, request: Request) -> ReplyFuture {
        if let Some(answer) = api::preflight_response(&self.fallback_endpoint.app, &request) {
            return Box::pin(ready(record_response(&self.fallback_endpoint, answer)));
        }
        if let Some(Route { verb, endpoint, .. }) = operation {
            let (path, method) = (request.uri().path(), request.method());
            let answer = method_not_allowed(&endpoint.app, path, method, verb.as_str());
            return Box::pin(ready(record_response(endpoint, answer)));
        }
        let other = self.fallback_endpoint.clone();
        if Dashboard::is_dashboard_path(request.uri().path()) {
            let answer = self.dashboard.clone().answer(request);
            return Box::pin(answer.map(move |answer| record_response(&other, answer)));
        }
        let answer = self.router.clone().call(request);
        Box::pin(answer.map(move |Ok(answer)| record_response(&other, answer)))
    }
}

fn record_response(endpoint: &Endpoint, answer: Response<Body>) -> Response<Body> {
    endpoint.requests.record_status(answer.status().as_u16());
    answer
}

fn build_router(app: Arc<App>) -> Router {
    let has_metrics = app.context.settings.security.metrics_listen.is_none();
    let router = Router::new();
    let router = if has_metrics { router.route("/metrics", get(metrics)) } else { router };
    add_health_routes(router)
        .route("/v2/liveness", get(liveness))
        .route("/.well-known/security.txt", get(security_txt::serve))
        .route(jwks::PATH, get(async |State(app): State<Arc<App>>| jwks::serve(&app).await))
        .route(
            protected_resource::ROUTE,
            get(serve_protected_resource).options(async || protected_resource::preflight()),
        )
        // The server in the documents is derived from the URL of the documentation.
        .merge(openapi::build_router(&app.context.settings.docs_url))
        .route("/errors/{name}", get(serve_error_page))
        .fallback(not_found)
        .method_not_allowed_fallback(
            async |State(app): State<Arc<App>>, uri: Uri, method: Method| {
                method_not_allowed(&app, uri.path(), &method, "GET")
            },
        )
        .with_state(app)
}

/// Returns the paths of the listener for metrics. Health is served there too, because client connections cannot take its
/// connections.
fn build_metrics_router(app: Arc<App>) -> Router {
    add_health_routes(Router::new().route("/metrics", get(metrics))).with_state(app)
}

fn add_health_routes(router: Router<Arc<App>>) -> Router<Arc<App>> {
    router.route("/livez", get(async || "ok\n")).route("/readyz", get(readiness))
}

async fn liveness(State(app): State<Arc<App>>) -> Response<Body> {
    api::v2::V2::render_success(
        &RequestId::new(app.context.clock.now()),
        &json!({ "message": "Keyward is alive" }),
    )
}

/// Answers 503 until the store has been opened and while draining, otherwise 200: a load balancer must not remove every
/// replica because Redis is unreachable.
async fn readiness(State(app): State<Arc<App>>) -> Response<Body> {
    let health = health::check_health(&app.context).await;
    let draining = app.context.is_draining.load(Ordering::Relaxed);
    let (status, code) = if draining {
        ("draining", StatusCode::SERVICE_UNAVAILABLE)
    } else if app.context.store.store().is_err() {
        ("starting", StatusCode::SERVICE_UNAVAILABLE)
    } else if health.is_database_reachable && health.is_redis_reachable {
        ("ready", StatusCode::OK)
    } else {
        ("degraded", StatusCode::OK)
    };
    let word = |is_reachable: bool| if is_reachable { "ok" } else { "away" };
    let (database, counters) =
        (word(health.is_database_reachable), word(health.is_redis_reachable));
    reply::render_json(
        code,
        &json!({ "status": status, "database": database, "counters": counters }),
    )
}

async fn metrics(State(app): State<Arc<App>>) -> Response<Body> {
    let text = app.context.metrics.render(&health::server_status(&app.context, &app.analytics));
    let format = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, HeaderValue::from_static(format))], text).into_response()
}

async fn serve_protected_resource(
    Path(policy): Path<String>,
    State(app): State<Arc<App>>,
) -> Response<Body> {
    protected_resource::serve(&app, &policy).await
}

async fn not_found(
    State(app): State<Arc<App>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response<Body> {
    let is_read = [Method::GET, Method::HEAD].contains(&method);
    if is_read && uri.path() == "/" && accepts_html(&headers) {
        let headers = [(LOCATION, dashboard::PATH_PREFIX), (VARY, "accept")];
        return (StatusCode::FOUND, headers).into_response();
    }
    api::render_path_error(&app, uri.path(), &Error::PathNotFound)
}

/// Returns whether a client names HTML among what it accepts, as browsers do for pages.
fn accepts_html(headers: &HeaderMap) -> bool {
    let ranges = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut types = ranges.flat_map(|value| value.split(',')).filter_map(|range| {
        let kind = range.split(';').next();
        kind.map(str::trim)
    });
    types.any(|kind| kind.eq_ignore_ascii_case("text/html"))
}

fn method_not_allowed(
    app: &App,
    path: &str,
    method: &Method,
    allowed: &'static str,
) -> Response<Body> {
    let error = Error::MethodNotAllowed(method.to_string(), allowed);
    let mut response = api::render_path_error(app, path, &error);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// Serves the section of `docs/errors.md` that explains an error.
async fn serve_error_page(Path(name): Path<String>, State(app): State<Arc<App>>) -> Response<Body> {
    match Code::ALL.iter().find(|code| code.name() == name) {
        Some(code) => dashboard::render_error_page(*code),
        None => api::render_path_error(&app, "/errors/", &Error::PathNotFound),
    }
}
