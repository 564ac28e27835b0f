//! What a caller asks: path, query and body, read with errors that name the field.

use axum::body::Body;
use axum::extract::Query;
use axum::response::{IntoResponse, Response};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Serialize;
use serde_json::Value;

use super::refusal::Refusal;

/// What a job gives back.
pub(super) type Answer = Result<Response, Refusal>;

/// A request with the parameters of its path.
pub(super) struct Ask {
    pub(super) path: Vec<(String, String)>,
    pub(super) request: Request<Body>,
}

impl Ask {
    /// A parameter of the path.
    pub(super) fn part(&self, name: &str) -> &str {
        self.path.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    /// A parameter of the path that is a number.
    pub(super) fn number<N: std::str::FromStr>(&self, name: &str) -> Result<N, Refusal> {
        let text = self.part(name);
        text.parse().map_err(|_| Refusal::field(name, format!("is {text:?}: write a whole number")))
    }

    pub(super) fn query(&self) -> Result<Fields, Refusal> {
        let pairs = Query::<Vec<(String, String)>>::try_from_uri(self.request.uri()).map_err(|_| {
            Refusal::field("query", "can't be read: write name=value&name=value, percent-encoded")
        })?;
        Ok(Fields(pairs.0))
    }

    /// The body, at most so many bytes of it.
    pub(super) async fn bytes(self, bytes_max: usize) -> Result<Vec<u8>, Refusal> {
        match Limited::new(self.request.into_body(), bytes_max).collect().await {
            Ok(body) => Ok(body.to_bytes().to_vec()),
            Err(error) if error.is::<LengthLimitError>() => Err(Refusal::too_large(bytes_max)),
            Err(_) => Err(Refusal::new(StatusCode::BAD_REQUEST, "BODY_BROKEN", "the body ended too early")),
        }
    }

    /// The body as JSON. Only `application/json` is taken: a page of another site can't send that unasked.
    pub(super) async fn json(self, bytes_max: usize) -> Result<Value, Refusal> {
        let kind = self.request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let kind =
            kind.and_then(|text| text.split(';').next()).unwrap_or_default().trim().to_ascii_lowercase();
        if kind != "application/json" {
            return Err(Refusal::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "NOT_JSON",
                "send the body as JSON, with content-type: application/json",
            ));
        }
        let bytes = self.bytes(bytes_max).await?;
        serde_json::from_slice(&bytes)
            .map_err(|error| Refusal::field("body", format!("is not JSON: {error}")))
    }
}

/// The pairs of a query. Take what you know, then [`Fields::end`] refuses the rest.
#[derive(Debug)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    /// A text; none if it is absent or empty.
    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, Refusal> {
        let mut found = None;
        while let Some(at) = self.0.iter().position(|(key, _)| key == name) {
            if found.replace(self.0.remove(at).1).is_some() {
                return Err(Refusal::field(name, "is there twice: write it once"));
            }
        }
        Ok(found.filter(|text| !text.is_empty()))
    }

    /// A whole number in a range.
    pub(super) fn whole(
        &mut self,
        name: &str,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<Option<u64>, Refusal> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let (min, max) = (range.start(), range.end());
        let wrong = || Refusal::field(name, format!("is {text:?}: write a whole number from {min} to {max}"));
        text.parse().ok().filter(|value| range.contains(value)).map(Some).ok_or_else(wrong)
    }

    /// True or false.
    pub(super) fn flag(&mut self, name: &str) -> Result<bool, Refusal> {
        match self.text(name)?.as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => Err(Refusal::field(name, format!("is {other:?}: write true or false"))),
        }
    }

    /// Refuses what nobody took: a misspelt filter must not mean "all".
    pub(super) fn end(self) -> Result<(), Refusal> {
        match self.0.into_iter().next() {
            None => Ok(()),
            Some((name, _)) => Err(Refusal::field(name, "is not a parameter of this path")),
        }
    }
}

/// A JSON answer.
pub(super) fn json(value: &impl Serialize) -> Response {
    axum::Json(value).into_response()
}
