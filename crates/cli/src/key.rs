//! `flint key`: who may use the server.

use crate::args::{KeyArgs, KeyCommand};
use crate::config::Config;
use crate::error::CliError;
use flint_server::database;
use flint_server::keys::Table;
use flint_text::day;
use std::path::Path;

pub fn key(config: &Config, args: &KeyArgs) -> Result<(), CliError> {
    let table = table(config, args.data.as_deref())?;
    match &args.command {
        KeyCommand::Add { name } => println!("{}", table.add(name)?),
        KeyCommand::Revoke { name } => {
            table.revoke(name)?;
            eprintln!("{name} is revoked: a server that runs refuses it within a second");
        }
        KeyCommand::List => list(&table)?,
    }
    Ok(())
}

/// The keys of the server whose data is there.
pub fn table(config: &Config, data: Option<&Path>) -> Result<Table, CliError> {
    let data = data.unwrap_or(&config.data);
    Ok(Table::open(&data.join(database::FILE))?)
}

fn list(table: &Table) -> Result<(), CliError> {
    let keys = table.list()?;
    let width = keys.iter().map(|key| key.name.len()).max().unwrap_or_default().max(4);
    println!("{:width$}  made        revoked", "name");
    for key in keys {
        let revoked = key.revoked.map_or_else(|| "-".to_owned(), |at| day(at as i64));
        println!("{:width$}  {}  {revoked}", key.name, day(key.created as i64));
    }
    Ok(())
}
