//! Talks to a running router's admin API: plain HTTP with a bearer token, and errors that say what to do next.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// An answer of the router is no larger.
const BODY_BYTES_MAX: usize = 64 << 20;
/// The router answers within this, or is taken for dead.
const ANSWER_MAX: Duration = Duration::from_secs(65);

/// Where the router is and how to be let in.
#[derive(Clone, Debug, clap::Args)]
pub struct Reach {
    /// The router's admin API
    #[arg(long, default_value = "http://127.0.0.1:8080", env = "CORELANE_URL", value_name = "URL")]
    url: String,
    /// File that holds the admin token (or set `CORELANE_TOKEN`)
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// A client with a runtime of its own.
pub(super) struct Api {
    runtime: tokio::runtime::Runtime,
    client: Client<HttpConnector, Full<Bytes>>,
    base: String,
    token: Option<String>,
}

impl Api {
    pub(super) fn new(reach: &Reach) -> anyhow::Result<Self> {
        let base = reach.url.trim_end_matches('/').to_owned();
        let uri: Uri = base.parse().with_context(|| format!("--url {base} is not a URL"))?;
        if uri.scheme_str() != Some("http") {
            bail!(
                "--url {base}: the admin API speaks plain HTTP; write http://HOST:PORT (use a tunnel over networks you do not trust)"
            );
        }
        let token = match &reach.token_file {
            Some(path) => Some(
                std::fs::read_to_string(path)
                    .with_context(|| format!("read the token from {}", path.display()))?,
            ),
            None => std::env::var("CORELANE_TOKEN").ok(),
        };
        Ok(Self {
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .context("start a runtime")?,
            client: Client::builder(TokioExecutor::new()).build_http(),
            base,
            token: token.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()),
        })
    }

    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.ask(Method::GET, path)
    }

    pub(super) fn post<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.ask(Method::POST, path)
    }

    /// True once `wait` is over, false if interrupted before.
    pub(super) fn pause(&self, wait: Duration) -> bool {
        self.runtime.block_on(async {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => false,
                () = tokio::time::sleep(wait) => true,
            }
        })
    }

    fn ask<T: DeserializeOwned>(&self, method: Method, path: &str) -> anyhow::Result<T> {
        let (status, body) = self.runtime.block_on(async {
            let answered = tokio::time::timeout(ANSWER_MAX, self.exchange(method, path)).await;
            answered
                .map_err(|_| anyhow!("{} took the request and gave no answer in {ANSWER_MAX:?}", self.base))?
        })?;
        if !status.is_success() {
            return Err(self.refusal(status, &body));
        }
        serde_json::from_slice(&body)
            .with_context(|| format!("{}{path} did not answer as a corelane of this version does", self.base))
    }

    async fn exchange(&self, method: Method, path: &str) -> anyhow::Result<(StatusCode, Bytes)> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request =
            request.body(Full::default()).context("make the request: is the token printable ASCII?")?;
        let answer = self.client.request(request).await.map_err(|error| {
            if error.is_connect() {
                anyhow!(
                    "nothing answers at {}: start `corelane run`, or name another place with --url",
                    self.base
                )
            } else {
                anyhow!("{} broke off: {error}", self.base)
            }
        })?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), BODY_BYTES_MAX).collect().await;
        let body = body.map_err(|error| anyhow!("read the answer of {}: {error}", self.base))?;
        Ok((status, body.to_bytes()))
    }

    fn refusal(&self, status: StatusCode, body: &[u8]) -> anyhow::Error {
        let said: Value = serde_json::from_slice(body).unwrap_or_default();
        let message = said["error"]["message"].as_str();
        match (status, message) {
            (StatusCode::UNAUTHORIZED, _) => anyhow!(
                "{} wants its admin token: set CORELANE_TOKEN or give --token-file FILE ({})",
                self.base,
                message.unwrap_or("it said no more")
            ),
            (_, Some(message)) => anyhow!("{message}"),
            (_, None) => {
                anyhow!("{} answered {status}, and not as a corelane does: is --url right?", self.base)
            }
        }
    }
}

/// A value as it may stand in a query.
pub(super) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_encoded_so_that_it_stays_one_value() {
        assert_eq!(encoded("a-b_c.d~1"), "a-b_c.d~1");
        assert_eq!(encoded("http://h/?a=b&c é"), "http%3A%2F%2Fh%2F%3Fa%3Db%26c%20%C3%A9");
    }
}
