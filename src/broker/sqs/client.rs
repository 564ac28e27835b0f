//! The calls to SQS: each with its timeout, its errors in words that say who can mend them.

use std::io;
use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_config::retry::RetryConfig;
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::Region;
use aws_sdk_sqs::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::types::{
    ChangeMessageVisibilityBatchRequestEntry, ChangeMessageVisibilityBatchResultEntry,
    DeleteMessageBatchRequestEntry, DeleteMessageBatchResultEntry, Message, MessageSystemAttributeName,
    QueueAttributeName,
};
use aws_smithy_http_client::tls::{self, rustls_provider::CryptoMode};
use serde::Deserialize;

use crate::ingress::ReceiveError;

use super::address::Address;

/// A call's longest time: a long poll of 20 s, and some.
const CALL_MAX: Duration = Duration::from_secs(25);
/// To open a connection.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Used where neither the URL nor the AWS chain names one; endpoints that are not AWS's do not care.
const REGION_ASSUMED: &str = "us-east-1";
/// SQS's own visibility timeout.
const LEASE_ASSUMED: Duration = Duration::from_secs(30);

/// What the queue says of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Learnt {
    pub(super) lease: Duration,
    /// Hand-overs after which SQS moves a message to its dead-letter queue.
    pub(super) deliveries_max: Option<u16>,
}

/// A poll that failed.
#[derive(Debug)]
pub(super) struct PollError {
    /// SQS may have handed over messages in an answer that never came.
    pub(super) unheard: bool,
    pub(super) error: ReceiveError,
}

/// A queue as it is spoken to. Cheap to copy.
#[derive(Clone, Debug)]
pub(super) struct Link {
    client: Client,
    /// The same without repeated calls, for polls: what the first of two had received would stay hidden. A client of its own,
    /// because settings of a single call are worked out anew each time.
    once: Client,
    url: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RedrivePolicy {
    max_receive_count: serde_json::Value,
}

impl Link {
    /// Finds credentials and region by AWS's usual chain. Calls nothing yet.
    pub(super) async fn new(address: &Address) -> Self {
        let provider = tls::Provider::Rustls(CryptoMode::Ring);
        let http = aws_smithy_http_client::Builder::new().tls_provider(provider).build_https();
        let timeouts =
            TimeoutConfig::builder().operation_attempt_timeout(CALL_MAX).connect_timeout(CONNECT_MAX).build();
        // Each call has its time already: nobody needs to watch its bytes as well.
        let mut loader = aws_config::defaults(BehaviorVersion::latest())
            .http_client(http)
            .timeout_config(timeouts)
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
        if let Some(region) = &address.region {
            loader = loader.region(Region::new(region.clone()));
        }
        let shared = loader.load().await;
        let mut config = aws_sdk_sqs::config::Builder::from(&shared);
        if shared.region().is_none() {
            config = config.region(Region::new(REGION_ASSUMED));
        }
        config.set_endpoint_url(address.endpoint.clone());
        let once = config.clone().retry_config(RetryConfig::disabled());
        let [client, once] = [config, once].map(|config| Client::from_conf(config.build()));
        Self { client, once, url: address.url.clone() }
    }

    /// Asks the queue for its settings: whether it is there, and may be used, shows too.
    pub(super) async fn learn(&self) -> Result<Learnt, ReceiveError> {
        let asked = self
            .client
            .get_queue_attributes()
            .queue_url(&self.url)
            .attribute_names(QueueAttributeName::VisibilityTimeout)
            .attribute_names(QueueAttributeName::RedrivePolicy)
            .send()
            .await
            .map_err(|error| self.refusal(&error))?;
        let said = asked.attributes.unwrap_or_default();
        let seconds = said.get(&QueueAttributeName::VisibilityTimeout).and_then(|text| text.parse().ok());
        let policy = said.get(&QueueAttributeName::RedrivePolicy);
        let policy = policy.and_then(|text| serde_json::from_str::<RedrivePolicy>(text).ok());
        let count = policy.and_then(|policy| match policy.max_receive_count {
            serde_json::Value::String(text) => text.parse().ok(),
            number => number.as_u64(),
        });
        Ok(Learnt {
            lease: seconds.map_or(LEASE_ASSUMED, Duration::from_secs),
            deliveries_max: count.map(|count| u16::try_from(count).unwrap_or(u16::MAX)),
        })
    }

    /// One long poll.
    pub(super) async fn poll(
        &self,
        max: i32,
        wait: Duration,
        lease: Duration,
    ) -> Result<Vec<Message>, PollError> {
        let got = self
            .once
            .receive_message()
            .queue_url(&self.url)
            .max_number_of_messages(max)
            .wait_time_seconds(seconds(wait))
            .visibility_timeout(seconds(lease))
            .message_system_attribute_names(MessageSystemAttributeName::MessageGroupId)
            .message_system_attribute_names(MessageSystemAttributeName::ApproximateReceiveCount)
            .send()
            .await
            .map_err(|error| PollError { unheard: may_have_arrived(&error), error: self.refusal(&error) })?;
        Ok(got.messages.unwrap_or_default())
    }

    /// Deletes up to ten messages; which of them are gone.
    pub(super) async fn delete(&self, handles: &[String]) -> Vec<bool> {
        let mut call = self.client.delete_message_batch().queue_url(&self.url);
        for (at, handle) in handles.iter().enumerate() {
            let entry = DeleteMessageBatchRequestEntry::builder().id(at.to_string()).receipt_handle(handle);
            call = call.entries(entry.build().expect("both fields are set"));
        }
        match call.send().await {
            Ok(answer) => {
                note_failures("delete", answer.failed());
                which(handles.len(), answer.successful().iter().map(DeleteMessageBatchResultEntry::id))
            }
            Err(error) => {
                note(&self.refusal(&error));
                vec![false; handles.len()]
            }
        }
    }

    /// Hides up to ten messages for so many seconds each, from now; for which of them that was done.
    pub(super) async fn hide(&self, handles: &[(String, u32)]) -> Vec<bool> {
        let mut call = self.client.change_message_visibility_batch().queue_url(&self.url);
        for (at, (handle, delay_s)) in handles.iter().enumerate() {
            let entry = ChangeMessageVisibilityBatchRequestEntry::builder()
                .id(at.to_string())
                .receipt_handle(handle)
                .visibility_timeout(i32::try_from(*delay_s).unwrap_or(i32::MAX));
            call = call.entries(entry.build().expect("both fields are set"));
        }
        match call.send().await {
            Ok(answer) => {
                note_failures("hide", answer.failed());
                which(
                    handles.len(),
                    answer.successful().iter().map(ChangeMessageVisibilityBatchResultEntry::id),
                )
            }
            Err(error) => {
                note(&self.refusal(&error));
                vec![false; handles.len()]
            }
        }
    }

    /// Messages that wait, about.
    pub(super) async fn depth(&self) -> Option<u64> {
        let asked = self.client.get_queue_attributes().queue_url(&self.url);
        let name = QueueAttributeName::ApproximateNumberOfMessages;
        let said = asked.attribute_names(name.clone()).send().await.ok()?;
        said.attributes?.get(&name)?.parse().ok()
    }

    /// Who can mend it: an operator, or time.
    fn refusal<E: ProvideErrorMetadata + std::error::Error + 'static>(
        &self,
        error: &SdkError<E>,
    ) -> ReceiveError
    where
        SdkError<E>: std::error::Error,
    {
        let code = error.as_service_error().and_then(ProvideErrorMetadata::code).unwrap_or_default();
        let said = error.as_service_error().and_then(ProvideErrorMetadata::message).unwrap_or_default();
        let is_missing = code.contains("NonExistentQueue") || code.contains("QueueDoesNotExist");
        let is_denied = code.contains("AccessDenied")
            || code.contains("InvalidClientTokenId")
            || code.contains("UnrecognizedClient")
            || code.contains("SignatureDoesNotMatch")
            || code.contains("InvalidSecurity");
        if is_missing {
            return ReceiveError::Denied { queue: format!("{}: there is no such queue: make it", self.url) };
        }
        if is_denied {
            let queue =
                format!("{}: refused ({code}: {said}): check the AWS credentials and the policy", self.url);
            return ReceiveError::Denied { queue };
        }
        let text = format!("SQS {}: {}", self.url, DisplayErrorContext(error));
        ReceiveError::Unreachable(io::Error::other(text))
    }
}

/// Was the request sent, and its answer lost? Only a connection that could not be made says for sure that it was not.
fn may_have_arrived<E: std::error::Error + 'static>(error: &SdkError<E>) -> bool
where
    SdkError<E>: std::error::Error,
{
    match error {
        SdkError::ConstructionFailure(_) | SdkError::ServiceError(_) => false,
        SdkError::DispatchFailure(_) => !DisplayErrorContext(error).to_string().contains("(Connect)"),
        _ => true,
    }
}

/// A lost delete or extension is not the end: the message comes back and is known.
fn note(error: &ReceiveError) {
    match error {
        ReceiveError::Unreachable(error) => tracing::warn!("{error}"),
        other => tracing::warn!("{other}"),
    }
}

fn note_failures(what: &str, failed: &[aws_sdk_sqs::types::BatchResultErrorEntry]) {
    if let Some(first) = failed.first() {
        let (code, said) = (first.code(), first.message().unwrap_or_default());
        tracing::debug!(count = failed.len(), code, "SQS could not {what} messages: {said}");
    }
}

fn which<'a>(count: usize, done: impl Iterator<Item = &'a str>) -> Vec<bool> {
    let mut all = vec![false; count];
    for at in done.filter_map(|id| id.parse::<usize>().ok()) {
        if let Some(one) = all.get_mut(at) {
            *one = true;
        }
    }
    all
}

fn seconds(time: Duration) -> i32 {
    i32::try_from(time.as_secs()).unwrap_or(i32::MAX)
}
