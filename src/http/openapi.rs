//! Serves the OpenAPI documents.

use std::sync::{Arc, OnceLock};

use api::reply;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Response, StatusCode};
use axum::routing::get;
use domain::app::App;

/// The documents. Each is rendered once: that takes milliseconds, and callers need no credentials for it. All responses
/// share the text, so a client that does not read them takes little memory.
struct OpenApiDocuments {
    /// The base URL of the API.
    server: String,
    v1: OnceLock<Bytes>,
    v2: OnceLock<Bytes>,
}

impl OpenApiDocuments {
    fn new(server: &str) -> Self {
        Self { server: server.to_owned(), v1: OnceLock::new(), v2: OnceLock::new() }
    }

    fn render_v1(&self) -> Bytes {
        let render = || to_bytes(serde_json::to_vec(&api::v1_document(&self.server)));
        self.v1.get_or_init(render).clone()
    }

    fn render_v2(&self) -> Bytes {
        let render = || to_bytes(serde_json::to_vec(&api::v2_document(&self.server)));
        self.v2.get_or_init(render).clone()
    }
}

fn to_bytes(written: serde_json::Result<Vec<u8>>) -> Bytes {
    // Writing to memory fails only for maps with non-string keys, and documents have none.
    written.unwrap_or_default().into()
}

/// Returns the paths of the documents, whose server is at this URL.
pub fn build_router(server: &str) -> Router<Arc<App>> {
    Router::new()
        .route("/openapi.json", get(serve_v2))
        .route("/v1/openapi.json", get(serve_v1))
        .with_state(Arc::new(OpenApiDocuments::new(server)))
}

async fn serve_v1(State(documents): State<Arc<OpenApiDocuments>>) -> Response<Body> {
    reply::build_json_response(StatusCode::OK, documents.render_v1())
}

async fn serve_v2(State(documents): State<Arc<OpenApiDocuments>>) -> Response<Body> {
    reply::build_json_response(StatusCode::OK, documents.render_v2())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_share_the_text_of_a_document() {
        let documents = OpenApiDocuments::new("https://keys.example.com");
        let [v1, v2] = [documents.render_v1(), documents.render_v2()];

        assert!(v1 != v2 && v2.starts_with(b"{"));
        assert_eq!(documents.render_v1().as_ptr(), v1.as_ptr());
        assert_eq!(documents.render_v2().as_ptr(), v2.as_ptr());
    }
}
