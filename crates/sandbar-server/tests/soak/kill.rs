//! `kill -9` of the server while it is used.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use http::{Method, StatusCode};
use sandbar::{ProviderExt as _, Query};
use serde_json::Value;

use crate::api::Api;
use crate::common::Made;
use crate::look::eventually;
use crate::served::Served;
use crate::soak;

/// Kills in the short run.
const KILLS: u64 = 2;
/// Users at once.
const USERS: usize = 6;
/// Sandboxes that are there when it is killed, at least.
const AT_LEAST: usize = 8;
/// The moment after that is any within these milliseconds.
const MOMENT: u64 = 400;

/// A sandbox that a client was told of, with a process that it was told of.
#[derive(Debug)]
struct Known {
    made: Made,
    pid: Value,
    /// Its end was asked for, and nobody knows whether it came to that.
    is_ending: bool,
}

/// `SANDBAR_SOAK` is the number of kills.
#[tokio::test(flavor = "multi_thread")]
async fn killed_in_the_middle_it_has_all_of_it_again() {
    let mut served = Served::start().await;
    for round in 0..soak().unwrap_or(KILLS) {
        let known = Mutex::new(Vec::new());
        let api = served.api.clone();
        let using = join_all((0..USERS).map(|user| use_until_it_is_gone(&api, &known, user)));
        let killing = async {
            eventually("there are sandboxes", async || hold(&known).len() >= AT_LEAST).await;
            tokio::time::sleep(Duration::from_millis(random(MOMENT))).await;
            served.kill();
        };
        tokio::join!(using, killing);
        served.start_again().await;
        let known = known.into_inner().unwrap_or_else(PoisonError::into_inner);
        println!("round {round}: {} sandboxes", known.len());
        for known in &known {
            let there = is_there(&api, known).await;
            there.unwrap_or_else(|why| panic!("round {round}: {known:?}: {why}"));
        }
        end_all(&api).await.unwrap_or_else(|why| panic!("round {round}: {why}"));
    }
    served.stop().await;
    // What was being made when the server was killed may have come to be after the last look: it has a record, so it is no orphan.
    let provider = served.provider();
    for record in provider.list_all(Query::new()).await.expect("a listing") {
        provider.destroy(&record.id).await.expect("destroyed");
    }
    served.assert_nothing_left().await;
}

/// Makes sandboxes with a process each, uses them, ends every third, until the server does not answer.
async fn use_until_it_is_gone(api: &Api, known: &Mutex<Vec<Known>>, user: usize) {
    let mut turn = user;
    let why = loop {
        turn += 1;
        if let Err(why) = use_one(api, known, turn.is_multiple_of(3)).await {
            break why;
        }
    };
    // It is gone, and not merely wrong.
    let gone = tokio::net::TcpStream::connect(api.address).await.is_err();
    assert!(gone, "a user had an error while the server was there: {why}");
}

async fn use_one(api: &Api, known: &Mutex<Vec<Known>>, ends: bool) -> Result<(), String> {
    let made = api.create().await?;
    let (_stream, pid) = api.start(&made, "sleep 1000").await?;
    let (id, place) =
        (made.id.clone(), |known: &[Known], id: &str| known.iter().position(|one| one.made.id == id));
    hold(known).push(Known { made: made.clone(), pid, is_ending: false });
    api.run(&made, "echo word > /home/user/kept").await?;
    if ends {
        {
            let mut known = hold(known);
            let at = place(&known, &id).ok_or("it is not known")?;
            known[at].is_ending = true;
        }
        api.kill(&id).await?;
        let mut known = hold(known);
        let at = place(&known, &id).ok_or("it is not known")?;
        known.remove(at);
    }
    Ok(())
}

/// Whether a sandbox is as it was.
async fn is_there(api: &Api, known: &Known) -> Result<(), String> {
    let target = format!("/sandboxes/{}", known.made.id);
    let found = api.control(Method::GET, &target, Value::Null, StatusCode::OK).await;
    if known.is_ending && found.as_ref().is_err_and(|why| why.contains("404")) {
        return Ok(());
    }
    let found = found?;
    if known.is_ending {
        return Ok(());
    }
    if found["state"] != "running" {
        return Err(format!("it is {}", found["state"]));
    }
    api.meet(&known.made, &known.pid).await?;
    api.run(&known.made, "test ! -e /home/user/kept || cat /home/user/kept").await.map(drop)
}

/// Ends all that are there, also those that nobody was told of.
async fn end_all(api: &Api) -> Result<(), String> {
    loop {
        let listed = api.list().await?;
        if listed.is_empty() {
            return Ok(());
        }
        for id in listed {
            match api.kill(&id).await {
                // It was on its way already when the server was killed.
                Err(why) if why.contains("404") => {}
                other => other?,
            }
        }
    }
}

fn random(below: u64) -> u64 {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).expect("random numbers");
    u64::from_le_bytes(bytes) % below
}

fn hold<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
