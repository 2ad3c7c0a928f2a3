-- What was used: one row for a key, a model and a day (UTC). A key's row is kept after it is revoked.
create table usage (
    key integer not null references keys (id),
    model text not null,
    day text not null,
    requests integer not null,
    input integer not null,     -- tokens
    cached integer not null,    -- of these
    output integer not null,
    reasoning integer not null, -- of these
    price_nanos integer not null,
    primary key (key, model, day)
) strict, without rowid;
