create table responses (
    key integer primary key,   -- the oldest have the lowest
    id text not null unique,
    tenant integer not null,
    status text not null,
    model text not null,
    weights text not null,     -- sha256
    created_at integer not null,
    seed integer not null,
    previous text,
    history text,              -- JSON items before the input, where `previous` is not in this table
    input text not null,       -- JSON items
    response text not null,    -- JSON, as it began or as it ended
    request text not null,     -- JSON, without its input
    prompt blob not null       -- tokens, 4 bytes each
) strict;

create index responses_unfinished on responses (key) where status in ('queued', 'in_progress');

create table events (
    response integer not null references responses (key) on delete cascade,
    number integer not null,
    last integer not null,     -- nothing follows
    json blob not null,
    tape blob,                 -- tokens that were generated since the event before that has some
    primary key (response, number)
) strict, without rowid;
