//! Config sync and reload: what comes from the platform or the file, judged and put into effect.

use tracing::{info, warn};

use super::control::{Control, End, Synced};
use crate::sync::diff::diff;
use crate::sync::document::{Problem, ProblemKind};
use crate::sync::fetch::{FailedTry, fetch};
use crate::sync::{Accepted, Begin, accept, begin, cache, pool_limits};
use crate::telemetry::warnings::{Severity, WarningCode};
use crate::view::State;

impl Control {
    /// Starts a sync, unless one is under way.
    pub(super) fn start_sync(&mut self, synced: &flume::Sender<Synced>) {
        let Some(url) = self.settings.sync.url.clone() else { return };
        if std::mem::replace(&mut self.is_syncing, true) {
            return;
        }
        let (sync, synced) = (self.settings.sync.clone(), synced.clone());
        tokio::task::spawn_local(async move {
            let report = |failed: FailedTry<'_>| {
                warn!(attempt = failed.number, of = failed.of, error = %failed.error, "config sync failed");
            };
            // Does not block the thread that also takes it: there is one sync at a time and room for one.
            let _ = synced.send(fetch(&sync, &url, report).await);
        });
    }

    pub(super) async fn on_synced(&mut self, fetched: Synced) -> Result<(), End> {
        self.is_syncing = false;
        if self.frame.state == State::Starting {
            return self.on_first_synced(fetched).await;
        }
        let result = match &fetched {
            Ok(fetched) => {
                let limits = pool_limits(&self.settings);
                accept(&fetched.document, &self.configured, &self.settings.sync, limits)
                    .map_err(|error| (WarningCode::ConfigRefused, Severity::Error, error.to_string()))
            }
            Err(error) => Err((WarningCode::ConfigSyncFailed, Severity::Warn, error.to_string())),
        };
        match (result, fetched) {
            (Ok(accepted), Ok(fetched)) => self.take_on(accepted, Some(fetched.fetched_unix_s)).await,
            (Err((code, severity, why)), _) => {
                self.say(code, severity, "sync", &format!("{why}; the config in effect stays"));
            }
            (Ok(_), Err(_)) => {}
        }
        Ok(())
    }

    async fn on_first_synced(&mut self, fetched: Synced) -> Result<(), End> {
        let cached = match &self.settings.sync.url {
            Some(url) => {
                let (file, sync) = (self.settings.cache_file(), &self.settings.sync);
                cache::read(&file, url, sync.body_bytes_max, pool_limits(&self.settings)).unwrap_or_else(
                    |error| {
                        warn!(%error, "the cached config can't be used");
                        None
                    },
                )
            }
            None => None,
        };
        let fetched_at = fetched.as_ref().ok().map(|fetched| fetched.fetched_unix_s);
        match begin(fetched, cached, &self.settings.sync, pool_limits(&self.settings)) {
            Begin::Fresh(accepted) => self.take_on(*accepted, fetched_at).await,
            Begin::FromCache(accepted, why) => {
                let text = format!("{why}; started from the last good config on disk");
                self.say(WarningCode::ConfigSyncFailed, Severity::Warn, "sync", &text);
                self.take_on(*accepted, None).await;
            }
            Begin::Stop(why) => {
                let text = format!("the first config sync failed: {why}");
                self.say(WarningCode::ConfigSyncFailed, Severity::Critical, "sync", &text);
                return Err(End::NoConfig(text));
            }
        }
        self.frame.state = State::Running;
        Ok(())
    }

    /// Puts a judged config into effect, and keeps it on disk if it was fetched just now.
    async fn take_on(&mut self, accepted: Accepted, fetched_unix_s: Option<u64>) {
        for Problem { kind, text } in &accepted.problems {
            let (code, severity) = match kind {
                ProblemKind::Entry => (WarningCode::Configuration, Severity::Error),
                ProblemKind::PoolLimit => (WarningCode::PoolLimit, Severity::Critical),
                ProblemKind::PoolsNearLimit => (WarningCode::PoolLimit, Severity::Warn),
            };
            self.say(code, severity, "sync", text);
        }
        self.configured = accepted.topology;
        let changes = diff(&self.running, &self.wanted());
        if !changes.is_empty() {
            self.apply(changes).await;
        }
        if let (Some(fetched_unix_s), Some(url)) = (fetched_unix_s, self.settings.sync.url.clone()) {
            let (file, topology) = (self.settings.cache_file(), self.configured.clone());
            let keep = move || cache::write(&file, &url, &topology, fetched_unix_s);
            match tokio::task::spawn_blocking(keep).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => warn!(%error, "the config could not be kept on disk"),
                Err(error) => warn!(%error, "the config could not be kept on disk"),
            }
        }
    }

    /// SIGHUP: the local file again, or a sync at once.
    pub(super) async fn on_hang_up(&mut self, synced: &flume::Sender<Synced>) {
        if self.frame.state != State::Running {
            return;
        }
        if self.settings.sync.url.is_some() {
            info!("SIGHUP: config sync");
            return self.start_sync(synced);
        }
        match (self.reload)() {
            Err(text) => self.say(WarningCode::ConfigRefused, Severity::Error, "config", &text),
            Ok(settings) => {
                let changes = diff(&self.configured, &settings.topology);
                if let Err(refused) = changes.guard(&self.configured, settings.sync.allow_mass_removal) {
                    return self.say(
                        WarningCode::ConfigRefused,
                        Severity::Error,
                        "config",
                        &refused.to_string(),
                    );
                }
                info!("SIGHUP: config read again");
                self.configured = settings.topology;
                let changes = diff(&self.running, &self.wanted());
                self.apply(changes).await;
            }
        }
    }
}
