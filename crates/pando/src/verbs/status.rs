//! `pando status`: the state of a volume and of its daemon.

use serde_json::json;
use wire::{Answer, Call, FailureKind, Merges, ScanInfo, Status, StoreStatus};

use crate::cli::VolumeArg;
use crate::failure::Result;
use crate::host;
use crate::output::{self, Output};
use crate::place::VolumePath;
use crate::session;

mod text;

pub(crate) fn run(args: &VolumeArg, output: &mut Output) -> Result<()> {
    let volume = VolumePath::whole_volume(&args.path, "status")?;
    match session::ask(&volume, &Call::Status)? {
        Answer::Status(status) => {
            // The verb prints what is known of a damaged volume, also if this part is not.
            let index = index(&volume).unwrap_or_else(|failure| {
                output.remark(&format!("the record of the index cannot be read: {failure}"));
                None
            });
            let dollars = status.store.as_ref().map(dollars).transpose()?;
            let mut object = json(&volume, &status);
            if let Some(dollars) = dollars {
                object["store"]["dollars_a_day"] = json!(dollars);
            }
            object["index"] = index.as_ref().map_or(serde_json::Value::Null, index_json);
            output.object(&object)?;
            let mut rows = text::of_status(&volume, &status, dollars);
            rows.extend(index.iter().flat_map(text::of_index));
            text::print(&rows, output)
        }
        other => Err(session::unexpected(&other)),
    }
}

/// What the volume records about the tree of which it is an index; `None`: it is no index.
fn index(volume: &std::path::Path) -> Result<Option<ScanInfo>> {
    match session::ask(volume, &Call::ScanInfo) {
        Ok(Answer::ScanInfo(info)) => Ok(info),
        Ok(other) => Err(session::unexpected(&other)),
        // Users of other machines do not learn where the tree is.
        Err(failure) if failure.kind == FailureKind::NotSupported => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn index_json(index: &ScanInfo) -> serde_json::Value {
    let scanned = index.started.map(|started| {
        json!({
            "started": output::time_rfc3339(started),
            "updated": output::time_rfc3339(index.ended),
            "unread": index.unread,
        })
    });
    let mut object = json!({
        "scanned": scanned,
        "unfinished": index.unfinished,
        "crosses_mounts": index.crosses_mounts,
        "keeps_xattrs": index.keeps_xattrs,
        "followed": index.followed.map(|followed| json!({
            "by": followed.by.to_string(),
            "pid": followed.pid,
            "uid": followed.uid,
            "unwatched_directories": followed.unwatched,
        })),
    });
    output::put_bytes(&mut object, "source", &index.source.0);
    object
}

fn json(volume: &std::path::Path, status: &Status) -> serde_json::Value {
    let mount_point = output::optional(status.mount_point.as_ref());
    json!({
        "path": host::shown(volume),
        "volume": status.volume,
        "format_version": status.format_version,
        "engine": status.engine,
        "durability": status.durability,
        "created": output::time_rfc3339(status.created),
        "daemon": { "pid": status.pid, "mount_point": mount_point },
        "pid": status.pid,
        "mount_point": mount_point,
        "inodes": status.files,
        "bytes": status.bytes,
        "snapshots": status.snapshots,
        "clones": status.clones,
        "subvolumes": status.subvolumes,
        "disk_bytes": disk_bytes(status),
        "log_bytes": status.log_bytes,
        "log_bytes_since_checkpoint": status.log_bytes_since_checkpoint,
        "cache_bytes": status.cache_bytes,
        "written_bytes": status.written_bytes,
        "writing": {
            "commits": status.commits,
            "writes": status.writes,
            "mean_write_bytes": status.written_bytes / status.writes.max(1),
            "bytes_per_commit": status.written_bytes / status.commits.max(1),
            "checkpoints": status.checkpoints,
            "checkpoint_bytes": status.checkpoint_bytes,
            "checkpoint_mean_write_bytes":
                status.checkpoint_bytes / status.checkpoint_writes.max(1),
            "merge_bytes": status.merge_bytes,
            "ingest_bytes": status.ingest_bytes,
            "given_bytes": status.given_bytes,
            "write_amplification": amplification(status),
        },
        "merges": status.merges.map(merges),
        "replayed": status.replayed,
        "nodes_held": status.nodes,
        "last_checkpoint": status.last_checkpoint.map(output::time_rfc3339),
        "background": {
            "idle": status.background.is_idle(),
            "detached": status.background.detached,
            "dropping": status.background.dropping,
            "prunes": status.background.prunes,
            "freeing_bytes": status.background.freeing_bytes,
            "freed_bytes": status.background.freed_bytes,
            "collecting": status.background.collecting,
            "counting": status.background.counting,
            "reclaimed": status.background.reclaimed,
            "reclaimed_a_second": status.background.reclaimed_a_second,
        },
        "store": status.store.as_ref().map(store_json),
        "read_only": status.read_only,
        "damaged": status.damaged,
        "stuck": status.stuck.as_ref().map(|stuck| json!({
            "trees": stuck.trees,
            "why": stuck.failure.message,
        })),
    })
}

/// The disk space of the volume; `None` if it is in an object store that was not measured yet.
fn disk_bytes(status: &Status) -> Option<u64> {
    status.store.as_ref().map_or(Some(status.disk_bytes), |store| store.stored_bytes)
}

/// The estimated price of a day, by the prices of this command's environment.
fn dollars(store: &StoreStatus) -> Result<f64> {
    host::price_of_day(store)
}

fn store_json(store: &StoreStatus) -> serde_json::Value {
    let lasts = |waits: &Option<(u64, String)>| {
        waits.as_ref().map(|(seconds, why)| json!({ "seconds": seconds, "why": why }))
    };
    let times = store.commit_times.iter();
    let times: Vec<_> = times.map(|(up_to, count)| json!([up_to, count])).collect();
    json!({
        "url": store.url,
        "requests": {
            "create": store.creates,
            "read": store.reads,
            "list": store.lists,
            "head": store.heads,
            "delete": store.deletes,
            "retries": store.retries,
        },
        "seconds": store.seconds,
        "commits": {
            "micros": store.commit_micros,
            "times": times,
        },
        "content_objects": store.content_objects,
        "bytes_received": store.bytes_in,
        "bytes_sent": store.bytes_out,
        "cache": store.cache.map(|cache| json!({
            "hits": cache.hits,
            "misses": cache.misses,
            "bytes": cache.bytes,
        })),
        "unreachable": lasts(&store.unreachable),
        "changes_wait": lasts(&store.waits),
        "silent_seconds": store.silent,
    })
}

/// Bytes written per byte that operations submitted; `None` if they submitted none, as in an idle
/// volume.
fn amplification(status: &Status) -> Option<f64> {
    (status.given_bytes > 0).then(|| status.written_bytes as f64 / status.given_bytes as f64)
}

fn merges(merges: Merges) -> serde_json::Value {
    json!({
        "ended": merges.ended,
        "under_way": merges.under_way.map(|(written, of)| json!({
            "written_bytes": written,
            "of_bytes": of,
        })),
        "next": merges.next.map(|(runs, bytes)| json!({ "runs": runs, "bytes": bytes })),
        "depth": merges.depth,
        "bytes_per_second_max": merges.rate,
        "value_logs": merges.logs.map(|logs| json!({
            "values_from_bytes": logs.values_from,
            "count": logs.logs,
            "disk_bytes": logs.disk_bytes,
            "rows_bytes": logs.rows_bytes,
            "live_bytes": logs.live_bytes,
            "to_empty": logs.sparse,
            "cleaned": merges.cleaned,
        })),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use wire::{Background, Failure, StoreCache, Stuck, ValueLogs};

    use super::*;

    /// A status of which each part is there and each number differs from all others. A new field
    /// must be named here.
    pub(super) fn distinct() -> Status {
        let mut last = 1_000_000;
        let mut next = || {
            last += 1_001;
            last
        };
        let (merges, background) = (merges(&mut next), background(&mut next));
        let store = store(&mut next);
        Status {
            volume: "a volume".to_owned(),
            format_version: 7_001,
            engine: "an engine".to_owned(),
            durability: "a mode".to_owned(),
            pid: 7_003,
            mount_point: None,
            files: next(),
            bytes: next(),
            snapshots: next(),
            clones: next(),
            subvolumes: next(),
            disk_bytes: next(),
            log_bytes: next(),
            log_bytes_since_checkpoint: next(),
            cache_bytes: next(),
            written_bytes: next(),
            writes: next(),
            checkpoint_bytes: next(),
            checkpoint_writes: 7,
            merge_bytes: next(),
            ingest_bytes: next(),
            given_bytes: next(),
            merges: Some(merges),
            checkpoints: next(),
            commits: next(),
            replayed: next(),
            nodes: next(),
            created: 0,
            last_checkpoint: None,
            background,
            read_only: Some("why it is read-only".to_owned()),
            damaged: Some("what is damaged".to_owned()),
            stuck: Some(Stuck { trees: next(), failure: Failure::new(FailureKind::Other, "why") }),
            store: Some(store),
        }
    }

    fn merges(next: &mut dyn FnMut() -> u64) -> Merges {
        let logs = ValueLogs {
            values_from: next(),
            logs: next(),
            disk_bytes: next(),
            rows_bytes: next(),
            live_bytes: next(),
            sparse: next(),
        };
        Merges {
            ended: next(),
            cleaned: next(),
            logs: Some(logs),
            under_way: Some((next(), next())),
            next: Some((next(), next())),
            depth: next(),
            rate: next(),
        }
    }

    fn background(next: &mut dyn FnMut() -> u64) -> Background {
        Background {
            detached: next(),
            dropping: next(),
            prunes: next(),
            freeing_bytes: next(),
            freed_bytes: next(),
            collecting: true,
            counting: next(),
            reclaimed: next(),
            reclaimed_a_second: next(),
        }
    }

    fn store(next: &mut dyn FnMut() -> u64) -> StoreStatus {
        StoreStatus {
            url: "s3://bucket".to_owned(),
            creates: next(),
            reads: next(),
            lists: next(),
            heads: next(),
            deletes: next(),
            retries: next(),
            bytes_in: next(),
            bytes_out: next(),
            cache: Some(StoreCache { hits: next(), misses: next(), bytes: next() }),
            seconds: next(),
            stored_bytes: Some(next()),
            content_objects: next(),
            commit_times: vec![(Some(next()), next()), (None, next())],
            commit_micros: next(),
            silent: Some(next()),
            unreachable: Some((next(), "why it is".to_owned())),
            waits: Some((next(), "why they do".to_owned())),
        }
    }

    /// Numbers and words of a value, wherever they are.
    fn leaves(value: &Value, found: &mut Vec<Value>) {
        match value {
            Value::Array(parts) => parts.iter().for_each(|part| leaves(part, found)),
            Value::Object(parts) => parts.values().for_each(|part| leaves(part, found)),
            Value::Null | Value::Bool(_) => {}
            leaf => found.push(leaf.clone()),
        }
    }

    #[test]
    fn json_has_every_field_of_the_status() {
        // What the store has is printed instead; of the number of writes a mean is; a time is as a
        // date.
        const NOT_AS_THEY_ARE: [&str; 3] = ["disk_bytes", "checkpoint_writes", "created"];
        // The kind, path and hint of the failure of what is stuck.
        let of_failure = [json!("Other"), json!("")];
        let status = distinct();
        let mut printed = Vec::new();
        leaves(&json(std::path::Path::new("/v"), &status), &mut printed);
        let Value::Object(fields) = serde_json::to_value(&status).unwrap() else { panic!() };
        let mut fields: Vec<_> = fields.into_iter().collect();
        fields.retain(|(name, _)| !NOT_AS_THEY_ARE.contains(&name.as_str()));
        let mut missing = Vec::new();
        for (name, value) in fields {
            let mut own = Vec::new();
            leaves(&value, &mut own);
            own.retain(|leaf| !printed.contains(leaf) && !of_failure.contains(leaf));
            missing.extend(own.into_iter().map(|leaf| format!("{leaf} of {name}")));
        }
        assert_eq!(missing, Vec::<String>::new());
    }
}
