//! `flint serve`: a model behind the Responses API.

use crate::agent::Note;
use crate::args::{ModelArgs, ServeArgs};
use crate::config::{Config, Telemetry};
use crate::device::Chosen;
use crate::error::CliError;
use crate::models;
use crate::progress::Spinner;
use crate::session::worker;
use crate::settings::Settings;
use flint_engine::load::ModelFile;
use flint_engine::supervise::{Listener, Options, Supervisor};
use flint_models::{ModelName, catalogue, sha256_of_model};
use flint_open::ModelText;
use flint_server::keys::{self, Local, Ring, Table};
use flint_server::limits::STORE_BYTES_DEFAULT;
use flint_server::usage::Books;
use flint_server::{
    Collector, Data, Facts, Front, Gate, Journal, Model, Outbox, Pace, Rules, Server,
    Settings as ServerSettings, Style, Tls, Truth,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub fn serve(config: &Config, model: &ModelArgs, args: &ServeArgs) -> Result<(), CliError> {
    let (front, journal) = (front(args)?, journal(config, args)?);
    let settings = Settings::read(config)?;
    let place = args.data.as_ref().unwrap_or(&config.data);
    let data = Data::claim(place)?;
    let keys = keys(config, &data)?;
    let books = Books::open(&data.database())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(CliError::io("the server's threads"))?;
    let (model, supervisor) = open(config, model, flint_server::listener(runtime.handle().clone()))?;
    let rules = Rules { limits: settings.limits, prices: settings.prices, journal };
    let gate = Gate::new(keys, books, rules, [model.name.as_str()]);
    let store_bytes_max = args.data_mib.map_or(STORE_BYTES_DEFAULT, |mib| mib << 20);
    let (models, pace) = (vec![Arc::new(model)], Pace::default());
    let server = Server::new(ServerSettings { models, gate, data, store_bytes_max, pace })?;
    let served = runtime.block_on(listen(args, place, server, front));
    // Before the engine: a response that still runs is to go on at the next start, not to fail now.
    drop(runtime);
    drop(supervisor);
    served
}

fn front(args: &ServeArgs) -> Result<Front, CliError> {
    let tls = match (&args.tls_cert, &args.tls_key) {
        (Some(certificate), Some(key)) => Some(Tls::open(certificate, key)?),
        _ => None,
    };
    if !args.host.is_loopback() && tls.is_none() && !args.insecure_listen {
        return Err(CliError::Usage(format!(
            "{} can be reached from other machines, and without TLS keys and prompts can be read on the way: \
             give --tls-cert FILE and --tls-key FILE, or --insecure-listen if the network is trusted",
            args.host
        )));
    }
    Ok(Front {
        allow_hosts: args.allow_host.clone(),
        allow_origins: args.allow_origin.clone(),
        websockets: !args.no_websocket,
        tls,
        drain: Duration::from_secs(args.drain_seconds),
        idle: args.idle_seconds.map(Duration::from_secs),
    })
}

/// Where requests are told of.
fn journal(config: &Config, args: &ServeArgs) -> Result<Journal, CliError> {
    let style = if args.log_json { Style::Json } else { Style::Plain };
    let Telemetry { endpoint, traces_endpoint, headers, service } = &config.telemetry;
    let of_traces = |base: &String| format!("{}/v1/traces", base.trim_end_matches('/'));
    let given = args.otlp.as_ref().map(of_traces).or_else(|| traces_endpoint.clone());
    let Some(url) = given.or_else(|| endpoint.as_ref().map(of_traces)) else {
        return Ok(Journal::new(style, None));
    };
    let collector =
        Collector::new(&url, headers, service).map_err(|error| CliError::Usage(error.to_string()))?;
    let outbox = Outbox::start(collector).map_err(CliError::io("the thread that sends traces"))?;
    Ok(Journal::new(style, Some(outbox)))
}

/// The keys that open the server; the first start makes one for whoever starts it.
fn keys(config: &Config, data: &Data) -> Result<Ring, CliError> {
    let (table, file) = (Table::open(&data.database())?, config.home.join("key"));
    let shown = file.display();
    match keys::local(&table, &file)? {
        Local::Made => eprintln!("your key was made, in {shown}: send `Authorization: Bearer KEY`"),
        Local::Found => eprintln!("your key is in {shown}"),
        Local::Nothing => eprintln!("there is no key for you here: `flint key add NAME` makes one"),
    }
    Ok(Ring::new(table)?)
}

async fn listen(args: &ServeArgs, data: &Path, server: Server, front: Front) -> Result<(), CliError> {
    let place = format!("{}:{}", args.host, args.port);
    let listener = flint_server::listen((args.host, args.port).into()).map_err(CliError::io(place))?;
    let address = listener.local_addr().map_err(CliError::io("the listening socket"))?;
    let scheme = if front.tls.is_some() { "https" } else { "http" };
    let note = Note { address, scheme: scheme.to_owned() };
    note.write(data).map_err(CliError::io(data.display().to_string()))?;
    println!("listening on {scheme}://{address}/v1");
    flint_server::run(server, front, listener, stop_signal()).await.map_err(CliError::io("the server"))
}

/// Ctrl-C, or what a service manager sends. Another one, later, ends the program without waiting for anybody.
async fn stop_signal() {
    stop_once().await;
    eprintln!("ending: running responses are finished first; once more to end at once");
    tokio::spawn(async {
        // What starts a server often passes a signal on that it got as well.
        tokio::time::sleep(Duration::from_secs(1)).await;
        stop_once().await;
        std::process::exit(130);
    });
}

async fn stop_once() {
    let terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate());
    let Ok(mut terminate) = terminate else { return };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

fn open(config: &Config, args: &ModelArgs, listener: Listener) -> Result<(Model, Supervisor), CliError> {
    let (name, path) = models::locate(config, args.model.as_deref())?;
    let name = ModelName::parse(&name)?.served(&name);
    let spinner = Spinner::new(format!("loading {name}"));
    let file = ModelFile::open(&path)?;
    let text = ModelText::read(&file)?;
    let device = Chosen::of(config, args, &path)?;
    let truth = truth(&name, &path, &file, args, &device)?;
    let context = file.config.context.try_into().unwrap_or(u32::MAX);
    drop(file);
    let supervisor = Supervisor::start_heard(worker(args, &path, &device)?, Options::default(), listener)?;
    drop(spinner);
    device.tell();
    let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let facts = Facts::new(&name, &text, context, created);
    Ok((Model::new(name, text, supervisor.handle(), truth, facts), supervisor))
}

fn truth(
    name: &str,
    path: &Path,
    file: &ModelFile,
    args: &ModelArgs,
    device: &Chosen,
) -> Result<Truth, CliError> {
    Ok(Truth {
        sha256: sha256_of_model(path)?,
        quantisation: match catalogue::find(name) {
            Some(entry) => entry.quantisation.clone(),
            None => main_format(file),
        },
        device: match args.scripted {
            Some(_) => "scripted: no model was asked".to_owned(),
            None => device.describe(args),
        },
        engine: format!("flint {}", env!("CARGO_PKG_VERSION")),
        speculation: args.speculates(),
        fallback: device.fallback(),
    })
}

/// The format that most bytes of the weights are in.
fn main_format(file: &ModelFile) -> String {
    let mut bytes: BTreeMap<&str, usize> = BTreeMap::new();
    for tensor in file.tensors() {
        *bytes.entry(tensor.format.name()).or_default() += tensor.bytes();
    }
    let most = bytes.into_iter().max_by_key(|(_, bytes)| *bytes);
    most.map_or_else(|| "unknown".to_owned(), |(name, _)| name.to_owned())
}
