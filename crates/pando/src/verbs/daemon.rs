//! `pando daemon`: the background process that other verbs start. Not for users.

use std::time::Duration;

use client::LaunchReport;

use crate::cli::DaemonArgs;
use crate::daemon;
use crate::daemon::detach;
use crate::failure::Result;
use crate::host::TakeOver;

pub(crate) fn run(args: &DaemonArgs) -> Result<()> {
    detach::leave_session();
    let start = daemon::Start {
        volume: args.voldir.clone(),
        mount: args.mount.clone().map(|mount_point| daemon::MountStart {
            mount_point,
            foreground: false,
            options: args.options.clone(),
        }),
        cache_bytes: args.cache_size,
        index_bytes: args.index_cache,
        idle: Some(Duration::from_secs(args.idle_seconds)),
        metrics: args.metrics,
        trace: args.trace.clone().map(|file| daemon::TraceStart { file, limit: args.trace_limit }),
        take_over: if args.take_over { TakeOver::Yes } else { TakeOver::No },
        serve: None,
    };
    let mut report = LaunchReport::new(std::io::stdout());
    let ended = daemon::run(&start, &mut |launch| {
        report.send(launch);
        detach::close_report();
    });
    if let Err(failure) = &ended {
        // The process that started this daemon reads this; later failures go to the log only.
        report.send(&client::Launch::Failed(failure.clone()));
    }
    ended
}
