use jiff::Timestamp;
use sandbar::{
    Error, ProviderExt, Query, SandboxProvider, SandboxRecord, VolumeInfo, VolumeName, VolumeQuery, Volumes,
};
use serde_json::json;

use crate::args::{VolumeAction, VolumeArgs, VolumeLsArgs};
use crate::commands::each::{REMOVE, each};
use crate::exit::ExitStatus;
use crate::failure::{Failure, Result};
use crate::output::{
    Printer, VolumesJson, print_bytes, print_json, print_line, volume_json, volume_table, volume_text,
};

pub(crate) async fn volume(
    provider: &dyn SandboxProvider,
    args: VolumeArgs,
    printer: Printer,
) -> Result<ExitStatus> {
    let volumes = provider.require_volumes()?;
    match args.action {
        VolumeAction::Create(args) => create(volumes, &args.names, printer).await,
        VolumeAction::Ls(args) => list(volumes, args, printer).await,
        VolumeAction::Show(args) => show(provider, volumes, &args.name, printer).await,
        VolumeAction::Rm(args) => remove(volumes, &args.names, printer).await,
    }
}

/// Makes each; one that can't be made does not keep the others.
async fn create(volumes: &dyn Volumes, names: &[VolumeName], printer: Printer) -> Result<ExitStatus> {
    let (mut created, mut existing, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for name in names {
        match printer.progress(&format!("making {name}"), volumes.create(name)).await {
            Ok(true) => created.push(name),
            Ok(false) => {
                printer.note(&format!("volume `{name}` is there already, and stays as it is"));
                existing.push(name);
            }
            Err(error) => {
                printer.error(&error);
                failed.push(name);
                continue;
            }
        }
        if !printer.json() {
            print_line(name.as_str())?;
        }
    }
    if printer.json() {
        print_json(&json!({"version": 1, "created": created, "existing": existing, "failed": failed}))?;
    }
    Ok(if failed.is_empty() { ExitStatus::Done } else { ExitStatus::Failed })
}

async fn list(volumes: &dyn Volumes, args: VolumeLsArgs, printer: Printer) -> Result<ExitStatus> {
    let VolumeLsArgs { prefix, attached, unattached } = args;
    let attached = (attached || unattached).then_some(attached);
    let mut infos = printer.progress("measuring", volumes.list(VolumeQuery { prefix, attached })).await?;
    infos.sort_by(|a, b| a.name.cmp(&b.name));
    if printer.json() {
        print_json(&VolumesJson::from(infos.as_slice()))?;
    } else {
        print_bytes(volume_table(&infos, Timestamp::now()).as_bytes())?;
    }
    Ok(ExitStatus::Done)
}

async fn show(
    provider: &dyn SandboxProvider,
    volumes: &dyn Volumes,
    name: &VolumeName,
    printer: Printer,
) -> Result<ExitStatus> {
    let look = async {
        let query = VolumeQuery { prefix: name.to_string(), attached: None };
        let info = volumes.list(query).await?.into_iter().find(|info| info.name == *name);
        Ok::<(Option<VolumeInfo>, Vec<SandboxRecord>), Error>(match info {
            Some(info) => (Some(info), provider.list_all(Query::new()).await?),
            None => (None, Vec::new()),
        })
    };
    let (info, records) = printer.progress("looking", look).await?;
    let Some(info) = info else { return Err(Failure::new(ExitStatus::Absent, absent("show volume", name))) };
    let holds = |record: &SandboxRecord| record.volumes.iter().any(|volume| volume.name == *name);
    let holders: Vec<_> = records.into_iter().filter(holds).collect();
    if printer.json() {
        print_json(&volume_json(&info, &holders))?;
    } else {
        print_bytes(volume_text(&info, &holders, Timestamp::now()).as_bytes())?;
    }
    Ok(ExitStatus::Done)
}

/// Removes each; one that is absent or held does not keep the others.
async fn remove(volumes: &dyn Volumes, names: &[VolumeName], printer: Printer) -> Result<ExitStatus> {
    let act = async |name: &VolumeName| Ok(volumes.remove(name).await?.then(|| name.clone()));
    each(REMOVE, names, act, |name| absent("remove volume", name), printer).await
}

fn absent(operation: &'static str, name: &VolumeName) -> Error {
    Error::not_found(operation, format!("volume `{name}`")).with_hint("`sandbar volume ls` shows what exists")
}
