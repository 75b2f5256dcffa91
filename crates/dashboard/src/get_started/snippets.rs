//! Code that verifies a key, in the languages of the official clients, with the address of this server.

use serde_json::json;

use super::super::format::curl_command;

/// The key in the snippets if there is none to fill in.
const EXAMPLE_KEY: &str = "KEY";

/// A snippet, shown in a tab.
pub struct Snippet {
    /// Identifies the snippet in the page.
    pub id: &'static str,
    pub label: &'static str,
    /// What to install or create first.
    pub hint: &'static str,
    pub text: String,
}

/// Returns the snippets for the server at `base_url`. A key consists of letters that need no escapes in a string literal,
/// unless it was imported: then the example key is used.
pub fn build(base_url: &str, key: Option<&str>) -> Vec<Snippet> {
    let key = key.filter(|key| is_plain(key)).unwrap_or(EXAMPLE_KEY);
    vec![
        Snippet {
            id: "typescript",
            label: "TypeScript",
            hint: "npm install @unkey/api",
            text: format_typescript(base_url, key),
        },
        Snippet {
            id: "python",
            label: "Python",
            hint: "pip install unkey.py",
            text: format_python(base_url, key),
        },
        Snippet {
            id: "go",
            label: "Go",
            hint: "go get github.com/unkeyed/sdks/api/go/v2",
            text: format_go(base_url, key),
        },
        Snippet {
            id: "curl",
            label: "curl",
            hint: "Replace ROOT_KEY with the root key.",
            text: curl_command(base_url, "keys.verifyKey", &json!({ "key": key }).to_string()),
        },
        Snippet {
            id: "gateway",
            label: "Gateway",
            hint: "Create a gateway policy. Its page has the complete configuration of nginx, HAProxy, Caddy, Traefik \
                and Envoy.",
            text: format_nginx(base_url),
        },
    ]
}

fn is_plain(key: &str) -> bool {
    !key.is_empty()
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
}

fn format_typescript(base_url: &str, key: &str) -> String {
    format!(
        r#"import {{ Unkey }} from "@unkey/api";

const keyward = new Unkey({{ serverURL: "{base_url}", rootKey: process.env.ROOT_KEY }});
const {{ data }} = await keyward.keys.verifyKey({{ key: "{key}" }});
console.log(data.valid, data.code);"#
    )
}

fn format_python(base_url: &str, key: &str) -> String {
    format!(
        r#"import os
from unkey.py import Unkey

with Unkey(server_url="{base_url}", root_key=os.environ["ROOT_KEY"]) as keyward:
    reply = keyward.keys.verify_key(key="{key}")
    print(reply.data.valid, reply.data.code)"#
    )
}

fn format_go(base_url: &str, key: &str) -> String {
    format!(
        r#"package main

import (
	"context"
	"fmt"
	"log"
	"os"

	unkey "github.com/unkeyed/sdks/api/go/v2"
	"github.com/unkeyed/sdks/api/go/v2/models/components"
)

func main() {{
	keyward := unkey.New(
		unkey.WithServerURL("{base_url}"),
		unkey.WithSecurity(os.Getenv("ROOT_KEY")),
	)
	reply, err := keyward.Keys.VerifyKey(context.Background(),
		components.V2KeysVerifyKeyRequestBody{{Key: "{key}"}})
	if err != nil {{
		log.Fatal(err)
	}}
	data := reply.V2KeysVerifyKeyResponseBody.Data
	fmt.Println(data.Valid, data.Code)
}}"#
    )
}

/// Returns the part of the configuration of nginx that asks Keyward.
fn format_nginx(base_url: &str) -> String {
    format!(
        "location / {{
    auth_request /_keyward;
    proxy_pass http://service;
}}

location = /_keyward {{
    internal;
    proxy_pass {base_url}/gateway/POLICY?mode=nginx;
    proxy_pass_request_body off;
    include /etc/nginx/keyward-secret.conf;
}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snippets_contain_the_address_and_the_key() {
        for snippet in build("https://keys.example:8443", Some("live_3xTw9")) {
            assert!(snippet.text.contains("https://keys.example:8443"), "{}", snippet.id);
            assert_eq!(snippet.text.contains("live_3xTw9"), snippet.id != "gateway");
        }
    }

    #[test]
    fn snippets_contain_an_example_when_key_needs_escapes() {
        for key in ["a\"b", "a\\b", "a'b", "a b", "é", ""] {
            for snippet in build("http://127.0.0.1:3000", Some(key)) {
                let has_key = snippet.text.contains("\"KEY\"");
                assert_eq!(has_key, snippet.id != "gateway", "{key} {}", snippet.text);
            }
        }
    }
}
