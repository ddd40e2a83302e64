use sandbar::Error;
use sandbar_server::KeyStore;
use serde_json::json;

use crate::args::{KeyAction, KeyArgs};
use crate::exit::ExitStatus;
use crate::failure::Result;
use crate::output::{Printer, columns, print_bytes, print_json, print_line, rfc3339};
use crate::settings::server_folder;

const HEADINGS: [&str; 5] = ["ID", "TENANT", "NAME", "ENDS WITH", "CREATED"];

pub(crate) async fn key(url: &str, args: KeyArgs, printer: Printer) -> Result<ExitStatus> {
    let store = KeyStore::open(&server_folder(args.data.as_deref(), url)?)?;
    match args.action {
        KeyAction::Create(args) => {
            let made = store.create(&args.name, args.tenant.as_deref()).await?;
            let key = &made.key;
            if printer.json() {
                print_json(&json!({
                    "version": 1, "key": made.text, "id": key.id, "tenant": key.tenant, "name": key.name,
                    "created_at": rfc3339(key.created_at),
                }))?;
            } else {
                print_line(&made.text)?;
            }
            Ok(ExitStatus::Done)
        }
        KeyAction::Ls(_) => {
            let keys = store.list().await?;
            if printer.json() {
                print_json(&json!({"version": 1, "keys": keys}))?;
            } else {
                let rows: Vec<_> = keys
                    .into_iter()
                    .map(|key| [key.id, key.tenant, key.name, key.hint, rfc3339(key.created_at)])
                    .collect();
                print_bytes(columns(HEADINGS, &rows).as_bytes())?;
            }
            Ok(ExitStatus::Done)
        }
        KeyAction::Rm(args) => {
            let (mut removed, mut absent) = (Vec::new(), Vec::new());
            for id in args.ids {
                if store.remove(&id).await? {
                    removed.push(id);
                } else {
                    let error = Error::not_found("remove key", format!("key `{id}`"));
                    printer.error(&error.with_hint("`sandbar key ls` shows what exists"));
                    absent.push(id);
                }
            }
            let status = if absent.is_empty() { ExitStatus::Done } else { ExitStatus::Absent };
            if printer.json() {
                print_json(&json!({"version": 1, "removed": removed, "absent": absent}))?;
            }
            Ok(status)
        }
    }
}
