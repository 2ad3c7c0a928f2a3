-- Who may use the server. The id is also the tenant, and is never given twice.
create table keys (
    id integer primary key autoincrement,
    name text not null,
    digest blob not null unique, -- SHA-256 of the key
    created integer not null,    -- unix seconds
    revoked integer
) strict;

create unique index keys_by_name on keys (name) where revoked is null;
