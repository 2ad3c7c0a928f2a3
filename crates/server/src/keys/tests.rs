use super::*;
use std::os::unix::fs::PermissionsExt;

fn table(folder: &tempfile::TempDir) -> Table {
    Table::open(&folder.path().join("flint.db")).unwrap()
}

#[test]
fn a_key_opens_until_it_is_revoked() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (table(&folder), table(&folder));
    let ann = ours.add("ann").unwrap();
    let ring = Ring::new(ours).unwrap();
    assert_eq!(&*ring.find(&ann).unwrap().name, "ann");
    // Another process adds and revokes.
    let ben = theirs.add("ben").unwrap();
    assert!(ring.find(&ben).is_some(), "one that was added is known at once");
    assert_ne!(ring.find(&ann).unwrap().tenant, ring.find(&ben).unwrap().tenant);
    theirs.revoke("ann").unwrap();
    wait_until(|| ring.find(&ann).is_none());
    assert!(ring.find(&ben).is_some());
}

#[test]
fn what_is_no_key_opens_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let table = table(&folder);
    let key = table.add("ann").unwrap();
    let ring = Ring::new(table).unwrap();
    for wrong in ["", "flint_", &key[1..], &key[..key.len() - 1], &format!("{key} "), &key.to_uppercase()] {
        assert!(ring.find(wrong).is_none(), "{wrong:?}");
    }
}

#[test]
fn a_name_is_given_again_but_never_its_tenant() {
    let folder = tempfile::tempdir().unwrap();
    let table = table(&folder);
    table.add("ann").unwrap();
    assert!(matches!(table.add("ann"), Err(KeyError::Taken(_))));
    let before = table.valid().unwrap()[0].1.tenant;
    table.revoke("ann").unwrap();
    assert!(matches!(table.revoke("ann"), Err(KeyError::Unknown(_))));
    table.add("ann").unwrap();
    assert_ne!(table.valid().unwrap()[0].1.tenant, before);
    assert_eq!(table.list().unwrap().len(), 2);
}

#[test]
fn names_are_plain() {
    let folder = tempfile::tempdir().unwrap();
    let table = table(&folder);
    for bad in ["", "a b", "a\n", "ä", &"x".repeat(65)] {
        assert!(matches!(table.add(bad), Err(KeyError::BadName(_))), "{bad:?}");
    }
}

#[test]
fn the_database_holds_no_key() {
    let folder = tempfile::tempdir().unwrap();
    let table = table(&folder);
    let key = table.add("ann").unwrap();
    drop(table);
    let bytes = std::fs::read(folder.path().join("flint.db")).unwrap();
    let secret = key.strip_prefix(PREFIX).unwrap().as_bytes();
    assert!(!bytes.windows(secret.len()).any(|window| window == secret));
}

#[test]
fn the_first_start_makes_a_key_for_the_local_user() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config/flint/key");
    let table = table(&folder);
    assert_eq!(local(&table, &file).unwrap(), Local::Made);
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    assert_eq!(local(&table, &file).unwrap(), Local::Found);
    let key = std::fs::read_to_string(&file).unwrap();
    // Another server of the same user takes the same key.
    let other = Table::open(&folder.path().join("other.db")).unwrap();
    assert_eq!(local(&other, &file).unwrap(), Local::Found);
    assert_eq!(&*Ring::new(other).unwrap().find(key.trim()).unwrap().name, LOCAL_NAME);
    // Revoked, it does not come back.
    table.revoke(LOCAL_NAME).unwrap();
    local(&table, &file).unwrap();
    assert!(Ring::new(table).unwrap().find(key.trim()).is_none());
}

#[test]
fn a_file_that_holds_something_else_is_not_taken_for_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, "password").unwrap();
    assert!(matches!(local(&table(&folder), &file), Err(KeyError::NotAKey { .. })));
}

fn wait_until(mut done: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !done() {
        assert!(std::time::Instant::now() < deadline, "it does not happen");
        std::thread::yield_now();
    }
}
