//! Counters of a volume and of its daemon, read at each scrape.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use wire::{Status, StoreStatus};

use crate::host::price_of_day;

/// What the metrics are read from.
pub(crate) trait Source: Send + Sync + 'static {
    /// The state of the volume; `None` if the daemon is leaving, or if it cannot be read.
    fn status(&self) -> Option<Status>;

    /// The number of connections to the daemon.
    fn sessions(&self) -> u64;
}

impl Source for std::sync::Arc<dyn Source> {
    fn status(&self) -> Option<Status> {
        (**self).status()
    }

    fn sessions(&self) -> u64 {
        (**self).sessions()
    }
}

/// The collector.
pub(super) struct Volume<S> {
    source: S,
}

impl<S> Volume<S> {
    pub(super) fn new(source: S) -> Volume<S> {
        Volume { source }
    }
}

impl<S> fmt::Debug for Volume<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volume").finish_non_exhaustive()
    }
}

/// Writes metrics one by one.
pub(super) struct Writer<'a> {
    pub(super) encoder: DescriptorEncoder<'a>,
}

impl Writer<'_> {
    fn write(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        metric: &impl EncodeMetric,
    ) -> fmt::Result {
        let kind = metric.metric_type();
        metric.encode(self.encoder.encode_descriptor(name, help, unit, kind)?)
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.write(name, help, None, &ConstGauge::new(signed(value)))
    }

    pub(super) fn bytes(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.write(name, help, Some(&Unit::Bytes), &ConstGauge::new(signed(value)))
    }

    pub(super) fn seconds(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.write(name, help, Some(&Unit::Seconds), &ConstGauge::new(value))
    }

    pub(super) fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.write(name, help, None, &ConstCounter::new(value))
    }

    fn counted_bytes(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.write(name, help, Some(&Unit::Bytes), &ConstCounter::new(value))
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl<S: Source> Collector for Volume<S> {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut writer = Writer { encoder };
        let status = self.source.status();
        let readable = u64::from(status.is_some());
        writer.gauge("up", "1 if the state of the volume can be read", readable)?;
        writer.gauge("sessions", "Connections to the daemon", self.source.sessions())?;
        let Some(status) = status else { return Ok(()) };
        let writable = u64::from(status.read_only.is_none());
        writer.gauge("writable", "1 if the volume accepts changes", writable)?;
        contents(&mut writer, &status)?;
        writes(&mut writer, &status)?;
        background(&mut writer, &status)?;
        status.store.as_ref().map_or(Ok(()), |of| store(&mut writer, of))
    }
}

fn contents(writer: &mut Writer<'_>, status: &Status) -> fmt::Result {
    writer.gauge("inodes", "Inodes of all kinds, without those of snapshots", status.files)?;
    writer.bytes("contents", "Contents of files, without those of snapshots", status.bytes)?;
    writer.gauge("snapshots", "Snapshots", status.snapshots)?;
    writer.gauge("clones", "Clones that were not rolled back since", status.clones)?;
    writer.gauge("held_inodes", "Inodes that the kernel and other clients hold", status.nodes)?;
    writer.bytes("disk", "Disk space of the volume, log included", status.disk_bytes)?;
    writer.bytes("log", "Disk space of the log", status.log_bytes)?;
    let help = "Log records since the last checkpoint, which an opening would replay";
    writer.bytes("log_since_checkpoint", help, status.log_bytes_since_checkpoint)?;
    writer.bytes("cache", "Memory of cached nodes and blocks", status.cache_bytes)
}

fn writes(writer: &mut Writer<'_>, status: &Status) -> fmt::Result {
    writer.counter("commits", "Batches committed", status.commits)?;
    writer.counter(
        "writes",
        "Writes of the store, contents of files not counted",
        status.writes,
    )?;
    writer.counted_bytes("written", "Bytes that these wrote", status.written_bytes)?;
    writer.counted_bytes("given", "Bytes that operations gave the store", status.given_bytes)?;
    writer.counter("checkpoints", "Checkpoints", status.checkpoints)?;
    let help = "Bytes that checkpoints wrote";
    writer.counted_bytes("checkpoint_written", help, status.checkpoint_bytes)?;
    writer.counted_bytes("merged", "Bytes that compactions wrote", status.merge_bytes)?;
    let Some(last) = status.last_checkpoint else { return Ok(()) };
    let help = "When the last checkpoint was, in seconds since 1970";
    let last = ConstGauge::new(last as f64 / 1e9);
    writer.write("last_checkpoint_time", help, Some(&Unit::Seconds), &last)
}

fn background(writer: &mut Writer<'_>, status: &Status) -> fmt::Result {
    let work = &status.background;
    writer.gauge("detached", "Removed directories that wait to be reclaimed", work.detached)?;
    writer.gauge("dropping", "Trees that wait to be reclaimed", work.dropping)?;
    let help = "Names, records and nodes that background work removed";
    writer.counter("reclaimed", help, work.reclaimed)?;
    writer.bytes(
        "freeing",
        "Contents that nothing names and that will be freed",
        work.freeing_bytes,
    )?;
    writer.counted_bytes(
        "freed",
        "Contents that nothing names and that were freed",
        work.freed_bytes,
    )
}

/// The object store of the volume.
pub(super) fn store(writer: &mut Writer<'_>, store: &StoreStatus) -> fmt::Result {
    let help = "Requests to the object store, repeats included";
    let kind = MetricType::Counter;
    let mut requests = writer.encoder.encode_descriptor("store_requests", help, None, kind)?;
    for (request, count) in [
        ("create", store.creates),
        ("read", store.reads),
        ("list", store.lists),
        ("head", store.heads),
        ("delete", store.deletes),
    ] {
        ConstCounter::new(count).encode(requests.encode_family(&[("request", request)])?)?;
    }
    writer.counter("store_retries", "Requests that repeated a failed one", store.retries)?;
    writer.counted_bytes("store_received", "Bytes received from the store", store.bytes_in)?;
    writer.counted_bytes("store_sent", "Bytes sent to the store", store.bytes_out)?;
    let reachable = u64::from(store.unreachable.is_none());
    writer.gauge("store_reachable", "1 unless the store fails requests", reachable)?;
    let waits = store.waits.as_ref().map_or(0, |(seconds, _)| *seconds);
    let waits = ConstGauge::new(signed(waits));
    let help = "How long the oldest change has waited to become durable";
    writer.write("store_waits", help, Some(&Unit::Seconds), &waits)?;
    // The daemon has the environment of the command that started it. Prices that cannot be read
    // there give no estimate; `pando status` names what is wrong with them.
    if let Ok(dollars) = price_of_day(store) {
        let dollars = ConstGauge::new(dollars);
        writer.write("store_day_dollars", "Estimated price of a day", None, &dollars)?;
    }
    let silent = ConstGauge::new(signed(store.silent.unwrap_or(0)));
    let help = "How long other hosts have seen no sign of this daemon, if the next is overdue";
    writer.write("store_silent", help, Some(&Unit::Seconds), &silent)?;
    let help = "Objects of contents in the store";
    writer.write(
        "store_content_objects",
        help,
        None,
        &ConstGauge::new(signed(store.content_objects)),
    )?;
    commits(writer, store)?;
    let Some(cache) = store.cache else { return Ok(()) };
    writer.counter("store_cache_hits", "Reads that the host's cache answered", cache.hits)?;
    writer.counter("store_cache_misses", "Reads that went to the store", cache.misses)?;
    writer.bytes("store_cache", "Bytes in the host's cache", cache.bytes)
}

/// How long commits to the store took, as a histogram.
fn commits(writer: &mut Writer<'_>, store: &StoreStatus) -> fmt::Result {
    let seconds = |limit: Option<u64>| limit.map_or(f64::INFINITY, |millis| millis as f64 / 1000.0);
    let buckets: Vec<(f64, u64)> =
        store.commit_times.iter().map(|&(limit, count)| (seconds(limit), count)).collect();
    let count = buckets.iter().map(|(_, count)| count).sum();
    let (unit, kind) = (Some(&Unit::Seconds), MetricType::Histogram);
    let help = "Time that commits to the store took";
    let mut encoder = writer.encoder.encode_descriptor("store_commit", help, unit, kind)?;
    encoder.encode_histogram::<NoLabelSet>(store.commit_micros as f64 / 1e6, count, &buckets, None)
}
