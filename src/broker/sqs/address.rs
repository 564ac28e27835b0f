//! Where an SQS queue is: its URL, and what follows from it. Pure.

/// A queue's URL, and the endpoint and region to speak to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// As the broker knows it.
    pub(super) url: String,
    /// Spoken to instead of AWS.
    pub(super) endpoint: Option<String>,
    /// Named by the URL; else the AWS chain says.
    pub(super) region: Option<String>,
}

impl Address {
    /// Reads a queue's URL. An endpoint that is not AWS's is the URL's own, unless `endpoint` names another.
    pub(super) fn new(url: &str, endpoint: Option<&str>) -> Self {
        let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
        let host = rest.split('/').next().unwrap_or_default();
        let name = host.split(':').next().unwrap_or_default();
        let is_aws = [".amazonaws.com", ".amazonaws.com.cn"].iter().any(|end| name.ends_with(end));
        let endpoint = match endpoint {
            Some(endpoint) => Some(endpoint.to_owned()),
            None if is_aws => None,
            None => Some(format!("{scheme}://{host}")),
        };
        Self { url: url.to_owned(), endpoint, region: is_aws.then(|| region_of(name)).flatten() }
    }

    /// The name ends as SQS asks of FIFO queues.
    pub(super) fn is_fifo(&self) -> bool {
        self.url.rsplit_once('.').is_some_and(|(_, end)| end == "fifo")
    }
}

/// `sqs.REGION.amazonaws.com`, or `REGION.queue.amazonaws.com`.
fn region_of(host: &str) -> Option<String> {
    let mut labels = host.split('.');
    let (first, second) = (labels.next()?, labels.next()?);
    let region = if first == "sqs" || first == "sqs-fips" { second } else { first };
    (region != "amazonaws" && region != "queue").then(|| region.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queues_url_says_whom_to_speak_to() {
        let rows = [
            ("https://sqs.eu-west-1.amazonaws.com/1/orders", None, None, Some("eu-west-1"), false),
            ("https://us-east-2.queue.amazonaws.com/1/orders.fifo", None, None, Some("us-east-2"), true),
            ("https://sqs.cn-north-1.amazonaws.com.cn/1/o", None, None, Some("cn-north-1"), false),
            ("https://queue.amazonaws.com/1/o", None, None, None, false),
            ("http://127.0.0.1:4566/0/o", None, Some("http://127.0.0.1:4566"), None, false),
            (
                "https://sqs.eu-west-1.amazonaws.com/1/o",
                Some("http://h:1"),
                Some("http://h:1"),
                Some("eu-west-1"),
                false,
            ),
        ];
        for (url, asked, endpoint, region, fifo) in rows {
            let address = Address::new(url, asked);
            assert_eq!(address.endpoint.as_deref(), endpoint, "{url}");
            assert_eq!(address.region.as_deref(), region, "{url}");
            assert_eq!(address.is_fifo(), fifo, "{url}");
        }
    }
}
