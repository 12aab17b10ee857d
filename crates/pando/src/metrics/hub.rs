//! Metrics of a server: those of its clients, and those of each of its volumes, by the label
//! `volume`, served here or by another server.
//!
//! Each volume has a registry of its own, made at each scrape, and their texts are merged: a format
//! of metrics has each family once.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use device::Clock;
use device::sync::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;
use remote::Server;

use super::volume::{Source, Volume, Writer};
use super::{Bound, Calls, Metrics, PREFIX};
use crate::failure::Result;

/// The metrics of a server.
pub(crate) struct Hub {
    server: Arc<Server>,
    volumes: Mutex<BTreeMap<String, Known>>,
}

/// A volume, as long as the server runs.
#[derive(Default)]
struct Known {
    /// While it is served here.
    served: Option<Served>,
    /// How often this server began to serve it.
    begun: u64,
}

#[derive(Clone)]
struct Served {
    calls: Calls,
    source: Arc<dyn Source>,
}

/// A volume is served; dropping this notes that it is not any more.
pub(crate) struct Serving {
    hub: Arc<Hub>,
    volume: String,
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(known) = self.hub.volumes.lock().get_mut(&self.volume) {
            known.served = None;
        }
    }
}

impl Hub {
    /// Answers scrapes of a server of these volumes, until the process ends.
    pub(crate) fn start(
        address: SocketAddr,
        volumes: impl Iterator<Item = String>,
        server: &Arc<Server>,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Hub>> {
        let bound = Bound::bind(address)?;
        let volumes = volumes.map(|name| (name, Known::default())).collect();
        let hub = Arc::new(Hub { server: Arc::clone(server), volumes: Mutex::new(volumes) });
        let own = Arc::clone(&hub);
        bound.answer(Metrics::of(clock, Box::new(move || own.text())))?;
        Ok(hub)
    }

    /// A volume is served here from now on.
    pub(crate) fn serves(
        self: &Arc<Hub>,
        volume: &str,
        calls: &Calls,
        source: impl Source,
    ) -> Serving {
        let mut volumes = self.volumes.lock();
        let known = volumes.entry(volume.to_owned()).or_default();
        known.served = Some(Served { calls: calls.clone(), source: Arc::new(source) });
        known.begun += 1;
        drop(volumes);
        Serving { hub: Arc::clone(self), volume: volume.to_owned() }
    }

    fn text(&self) -> std::result::Result<String, fmt::Error> {
        // Without the lock: a volume may take its time.
        let volumes: Vec<_> = self
            .volumes
            .lock()
            .iter()
            .map(|(name, known)| (name.clone(), known.served.clone(), known.begun))
            .collect();
        let mut texts = Vec::new();
        let mut whole = Registry::with_prefix(PREFIX);
        whole.register_collector(Box::new(OfServer(Arc::clone(&self.server))));
        texts.push(encoded(&whole)?);
        for (name, served, begun) in volumes {
            let label = ("volume".into(), name.clone().into());
            let mut own = Registry::with_prefix_and_labels(PREFIX, [label].into_iter());
            let serving = served.is_some();
            let server = Arc::clone(&self.server);
            own.register_collector(Box::new(OfVolume { server, name, serving, begun }));
            if let Some(Served { calls, source }) = served {
                calls.register(&mut own);
                own.register_collector(Box::new(Volume::new(source)));
            }
            texts.push(encoded(&own)?);
        }
        Ok(merged(&texts))
    }
}

fn encoded(registry: &Registry) -> std::result::Result<String, fmt::Error> {
    let mut made = String::new();
    text::encode(&mut made, registry)?;
    Ok(made)
}

/// One text of several: each family once, with the samples of all.
fn merged(texts: &[String]) -> String {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let mut families: Vec<(Vec<&str>, Vec<&str>)> = Vec::new();
    for text in texts {
        let mut at = 0;
        for line in text.lines().filter(|line| *line != "# EOF") {
            let Some(head) = line.strip_prefix("# ") else {
                families[at].1.push(line);
                continue;
            };
            let name = head.split(' ').nth(1).unwrap_or_default();
            at = *places.entry(name).or_insert_with(|| {
                families.push(Default::default());
                families.len() - 1
            });
            if !families[at].0.contains(&line) {
                families[at].0.push(line);
            }
        }
    }
    let lines = families.iter().flat_map(|(heads, samples)| heads.iter().chain(samples));
    let mut whole: String = lines.flat_map(|line| [*line, "\n"]).collect();
    whole.push_str("# EOF\n");
    whole
}

/// What concerns no single volume.
struct OfServer(Arc<Server>);

/// The clients of a volume, and whether it is served here.
struct OfVolume {
    server: Arc<Server>,
    name: String,
    serving: bool,
    begun: u64,
}

impl fmt::Debug for OfServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfServer").finish_non_exhaustive()
    }
}

impl fmt::Debug for OfVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfVolume").finish_non_exhaustive()
    }
}

impl Collector for OfServer {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (mut writer, totals) = (Writer { encoder }, self.0.totals());
        let help = "Connections to the server, also of those that have not identified themselves";
        writer.gauge("client_connections", help, totals.connections)?;
        let help = "Bytes of requests of clients that wait or run";
        writer.bytes("client_requests", help, totals.request_bytes)?;
        let help = "Connections that were refused, or were no client's";
        writer.counter("client_refusals", help, totals.refused)
    }
}

impl Collector for OfVolume {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (mut writer, counts) = (Writer { encoder }, self.server.counts(&self.name));
        let help = "1 if this server serves the volume, 0 if it waits for it";
        writer.gauge("serving", help, u64::from(self.serving))?;
        writer.counter("takeovers", "Times that this server began to serve it", self.begun)?;
        if let Some(granted) = counts.granted {
            let help = "How long the server may answer without a request to the store";
            writer.seconds("grant", help, granted.as_secs_f64())?;
        }
        let help = "Clients with a session, by the names in their certificates";
        writer.gauge("clients", help, counts.clients)?;
        writer.gauge("client_sessions", "Sessions of clients: mounts", counts.sessions)?;
        let help = "Sessions that have a connection";
        writer.gauge("client_sessions_connected", help, counts.connected)?;
        writer.gauge("client_commands", "Commands of clients under way", counts.commands)?;
        writer.gauge("client_nodes", "Inodes that clients hold", counts.nodes)?;
        writer.gauge("client_locks", "Locks that clients hold", counts.locks)?;
        let help = "Locks that clients wait for";
        writer.gauge("client_locks_waiting", help, counts.waiting_locks)?;
        let help = "Bytes of answers that clients have not acknowledged";
        writer.bytes("client_kept", help, counts.kept_bytes)?;
        let help = "Bytes of answers that clients have not read";
        writer.bytes("client_unread", help, counts.unread_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::merged;

    #[test]
    fn families_of_several_volumes_are_one() {
        let text = |volume: &str, more: &str| {
            format!(
                "# HELP a The first.\n# TYPE a gauge\na{{volume=\"{volume}\"}} 1\n{more}# EOF\n"
            )
        };
        let texts = [text("x", ""), text("y", "# TYPE b counter\nb_total{volume=\"y\"} 2\n")];
        let expected = "# HELP a The first.\n# TYPE a gauge\na{volume=\"x\"} 1\n\
                        a{volume=\"y\"} 1\n# TYPE b counter\nb_total{volume=\"y\"} 2\n# EOF\n";
        assert_eq!(merged(&texts), expected);
    }
}
