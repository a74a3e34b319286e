"""The tables of the SQLite store. Each entry is one migration; a file's `user_version` counts those that it has.

Migrations only add tables and columns, drop indexes and replace triggers: the previous version may still serve a file
while a newer one is rolled out. Bodies are JSON as in `records`.

A key of a session or a run is never given out again. A late write of a run names its session by key alone: under a
reused key it would reach the session of another user. SQLite reuses the key of the last row after that row is deleted,
so `spent_keys` remembers it. AUTOINCREMENT would write one more page with each request, and this only with a deletion.

Each index and each table that a commit changes is one more page that it writes, and 10 to 20 µs that a client waits.
Indexes that only the clean-up and rare reads need are therefore filled later: see `note_new` in `sqlite_runs`.
"""

APPLICATION_ID = 0x484F4C4F  # "HOLO": a file of another application is never touched

MIGRATIONS = (
    """
    CREATE TABLE sessions (
      key INTEGER PRIMARY KEY,
      agent TEXT NOT NULL, tenant TEXT NOT NULL, user TEXT NOT NULL, id TEXT NOT NULL,
      epoch INTEGER NOT NULL DEFAULT 0,            -- who may write: raised by each run's first commit
      created REAL NOT NULL, used REAL NOT NULL,   -- by the store's clock
      messages INTEGER NOT NULL DEFAULT 0, steps INTEGER NOT NULL DEFAULT 0, size INTEGER NOT NULL DEFAULT 0,
      v INTEGER NOT NULL, pending BLOB, state BLOB, summary BLOB,
      broken TEXT,                                 -- why it is set aside
      UNIQUE (agent, tenant, user, id)) STRICT;
    CREATE INDEX sessions_used ON sessions (used);
    CREATE INDEX sessions_of_owner ON sessions (agent, tenant, user, used);
    CREATE TABLE steps (
      session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE, seq INTEGER NOT NULL,
      messages INTEGER NOT NULL, by_user INTEGER NOT NULL,  -- how many, and whether a user's message comes first
      v INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (session, seq)) STRICT;
    CREATE TABLE runs (
      key INTEGER PRIMARY KEY,                     -- in the order of acceptance
      agent TEXT NOT NULL, tenant TEXT NOT NULL, user TEXT NOT NULL, id TEXT NOT NULL,
      session TEXT NOT NULL, wire TEXT NOT NULL, repeat_key TEXT, fingerprint BLOB,
      state TEXT NOT NULL, accepted REAL NOT NULL, ended REAL, recovered INTEGER NOT NULL DEFAULT 0,
      v INTEGER NOT NULL, request BLOB NOT NULL, ending BLOB,
      UNIQUE (agent, tenant, user, id)) STRICT;
    CREATE UNIQUE INDEX one_per_key ON runs (agent, tenant, user, wire, repeat_key) WHERE repeat_key IS NOT NULL;
    CREATE INDEX runs_open ON runs (agent) WHERE ended IS NULL;
    CREATE INDEX runs_ended ON runs (ended) WHERE ended IS NOT NULL;
    CREATE TABLE pieces (                          -- the copy of the run log
      run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE, first INTEGER NOT NULL,
      body BLOB NOT NULL, PRIMARY KEY (run, first)) STRICT;
    """,
    "CREATE INDEX runs_of_session ON runs (agent, tenant, user, session)",
    "ALTER TABLE runs ADD COLUMN root TEXT",  # the first run of its chain, if it is not the run itself
    "CREATE INDEX runs_of_chain ON runs (agent, tenant, user, root) WHERE root IS NOT NULL",
    "CREATE INDEX runs_with_key ON runs (ended) WHERE repeat_key IS NOT NULL",
    """
    CREATE TABLE kept_values (                     -- `sessions.values`
      key INTEGER PRIMARY KEY,                     -- in the order in which they were put
      agent TEXT NOT NULL, tenant TEXT NOT NULL, user TEXT NOT NULL,
      kind TEXT NOT NULL, topic TEXT NOT NULL, name TEXT NOT NULL,
      session TEXT,                                -- with which it is deleted
      body BLOB NOT NULL, expires REAL,            -- by the store's clock
      UNIQUE (agent, tenant, user, kind, topic, name)) STRICT;
    CREATE INDEX kept_values_of_kind ON kept_values (agent, tenant, user, kind, key);
    CREATE INDEX kept_values_of_session ON kept_values (agent, tenant, user, session) WHERE session IS NOT NULL;
    CREATE INDEX kept_values_expire ON kept_values (expires) WHERE expires IS NOT NULL;
    """,
    """
    -- of several workers the one that may write a run; whether it is to stop; raised while another worker reads it
    ALTER TABLE runs ADD COLUMN replica TEXT;
    ALTER TABLE runs ADD COLUMN stop_wanted INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE runs ADD COLUMN followed INTEGER NOT NULL DEFAULT 0;
    CREATE UNIQUE INDEX one_at_a_time ON runs (agent, tenant, user, session)
      WHERE state = 'running' AND ended IS NULL AND replica IS NOT NULL;
    CREATE TABLE replicas (
      id TEXT PRIMARY KEY, agent TEXT NOT NULL, beats INTEGER NOT NULL DEFAULT 0, version TEXT NOT NULL) STRICT;
    CREATE TABLE wishes (                          -- what workers want of each other's runs: `stop` or `follow`
      key INTEGER PRIMARY KEY AUTOINCREMENT, replica TEXT NOT NULL, wish TEXT NOT NULL,
      tenant TEXT NOT NULL, user TEXT NOT NULL, id TEXT NOT NULL) STRICT;
    CREATE INDEX wishes_of_replica ON wishes (replica, key);
    """,
    """
    CREATE TABLE tenant_sizes (                    -- the sum of `sessions.size`, kept by each transaction that changes it
      agent TEXT NOT NULL, tenant TEXT NOT NULL, size INTEGER NOT NULL,
      PRIMARY KEY (agent, tenant)) STRICT, WITHOUT ROWID;
    INSERT INTO tenant_sizes SELECT agent, tenant, sum(size) FROM sessions GROUP BY agent, tenant;
    CREATE TRIGGER session_added AFTER INSERT ON sessions WHEN new.size <> 0 BEGIN
      INSERT INTO tenant_sizes VALUES (new.agent, new.tenant, new.size)
        ON CONFLICT (agent, tenant) DO UPDATE SET size = size + excluded.size; END;
    CREATE TRIGGER session_resized AFTER UPDATE OF size ON sessions WHEN new.size <> old.size BEGIN
      INSERT INTO tenant_sizes VALUES (new.agent, new.tenant, new.size - old.size)
        ON CONFLICT (agent, tenant) DO UPDATE SET size = size + excluded.size; END;
    CREATE TRIGGER session_deleted AFTER DELETE ON sessions WHEN old.size <> 0 BEGIN
      UPDATE tenant_sizes SET size = size - old.size WHERE agent = old.agent AND tenant = old.tenant; END;
    """,
    # The unique index of names finds the sessions of an owner. The clean-up remembers how far it has removed keys.
    """
    DROP INDEX IF EXISTS sessions_of_owner;
    DROP INDEX IF EXISTS runs_with_key;
    """,
    # A tenant's sum is kept from the first time that it is read, which only servers with a limit for it do.
    """
    DELETE FROM tenant_sizes;
    DROP TRIGGER session_added;
    DROP TRIGGER session_resized;
    CREATE TRIGGER session_added AFTER INSERT ON sessions WHEN new.size <> 0 BEGIN
      UPDATE tenant_sizes SET size = size + new.size WHERE agent = new.agent AND tenant = new.tenant; END;
    CREATE TRIGGER session_resized AFTER UPDATE OF size ON sessions WHEN new.size <> old.size BEGIN
      UPDATE tenant_sizes SET size = size + new.size - old.size WHERE agent = new.agent AND tenant = new.tenant; END;
    """,
    # Indexes that no commit changes. A key that is the id of its run is unique already.
    """
    ALTER TABLE sessions ADD COLUMN noted REAL;
    ALTER TABLE runs ADD COLUMN noted REAL;
    DROP INDEX sessions_used;
    DROP INDEX runs_ended;
    DROP INDEX runs_of_session;
    DROP INDEX runs_open;
    DROP INDEX one_per_key;
    CREATE INDEX sessions_noted ON sessions (agent, noted) WHERE noted IS NOT NULL;
    CREATE INDEX runs_noted ON runs (agent, noted) WHERE noted IS NOT NULL;
    CREATE INDEX runs_of_session ON runs (agent, tenant, user, session) WHERE noted IS NOT NULL;
    CREATE INDEX runs_in_progress ON runs (agent, tenant, user, session) WHERE ended IS NULL;
    CREATE UNIQUE INDEX one_per_key ON runs (agent, tenant, user, wire, repeat_key) WHERE repeat_key <> id;
    """,
    """
    CREATE TABLE spent_keys (sessions INTEGER NOT NULL, runs INTEGER NOT NULL) STRICT;
    INSERT INTO spent_keys VALUES (0, 0);
    CREATE TRIGGER last_session_deleted AFTER DELETE ON sessions
      WHEN NOT EXISTS (SELECT 1 FROM sessions WHERE key > old.key) BEGIN
      UPDATE spent_keys SET sessions = max(sessions, old.key); END;
    CREATE TRIGGER last_run_deleted AFTER DELETE ON runs
      WHEN NOT EXISTS (SELECT 1 FROM runs WHERE key > old.key) BEGIN
      UPDATE spent_keys SET runs = max(runs, old.key); END;
    """,
    # Rows up to these keys are older than the indexes above. The clean-up adds them: a million would lock the file here.
    """
    CREATE TABLE not_noted (sessions INTEGER NOT NULL, runs INTEGER NOT NULL) STRICT;
    INSERT INTO not_noted SELECT coalesce((SELECT max(key) FROM sessions), 0), coalesce((SELECT max(key) FROM runs), 0);
    """,
    # Runs whose records are kept for a day only. In the order of their keys: a run's end changes no page of the index.
    """
    ALTER TABLE runs ADD COLUMN without_session INTEGER;
    CREATE INDEX runs_without_session ON runs (agent) WHERE without_session;
    """,
)


def next_key(table: str) -> str:
    """The expression for the key of a new row of `sessions` or `runs`: above all that the table has or had."""
    return f"max(coalesce((SELECT max(key) FROM {table}), 0), (SELECT {table} FROM spent_keys)) + 1"
