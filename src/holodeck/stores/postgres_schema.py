"""The tables of the PostgreSQL store, in their own schema. Each entry is one migration; `holodeck.version` counts them.

Migrations only add: the previous version may still serve a database while a newer one is rolled out. Bodies are JSON as
in `records`, in `bytea`: `jsonb` rejects NUL characters, and the database would parse it for nothing.
"""

LOCK = 0x484F4C4F  # "HOLO": if two processes start together, one migrates and the other waits

MIGRATIONS = (
    """
    CREATE TABLE holodeck.sessions (
      key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
      agent text NOT NULL, tenant text NOT NULL, user_name text NOT NULL, id text NOT NULL,
      epoch bigint NOT NULL DEFAULT 0,                               -- who may write: raised by each run's first commit
      created double precision NOT NULL, used double precision NOT NULL, -- by the database's clock
      messages integer NOT NULL DEFAULT 0, steps integer NOT NULL DEFAULT 0, size bigint NOT NULL DEFAULT 0,
      v smallint NOT NULL, pending bytea, state bytea, summary bytea,
      broken text,                                                   -- why it is set aside
      UNIQUE (agent, tenant, user_name, id));
    CREATE INDEX sessions_used ON holodeck.sessions (agent, used);
    CREATE TABLE holodeck.steps (
      session bigint NOT NULL REFERENCES holodeck.sessions ON DELETE CASCADE, seq integer NOT NULL,
      messages integer NOT NULL, by_user boolean NOT NULL,           -- how many, and whether a user's message comes first
      v smallint NOT NULL, body bytea NOT NULL, PRIMARY KEY (session, seq));
    CREATE TABLE holodeck.replicas (
      id text PRIMARY KEY, agent text NOT NULL,
      beats bigint NOT NULL DEFAULT 0, version text NOT NULL) WITH (fillfactor = 50);
    CREATE TABLE holodeck.runs (
      key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,           -- in the order of acceptance, which is that of turns
      agent text NOT NULL, tenant text NOT NULL, user_name text NOT NULL, id text NOT NULL,
      session text NOT NULL, wire text NOT NULL, repeat_key text, fingerprint bytea,
      replica text NOT NULL,                                         -- the process that may write it
      state text NOT NULL, accepted double precision NOT NULL, ended double precision,
      recovered integer NOT NULL DEFAULT 0,
      root text,                                                     -- the first run of its chain, if not the run itself
      stop_wanted boolean NOT NULL DEFAULT false,
      followed integer NOT NULL DEFAULT 0,                           -- raised while another process reads it
      v smallint NOT NULL, request bytea NOT NULL, ending bytea,
      UNIQUE (agent, tenant, user_name, id));
    CREATE UNIQUE INDEX one_at_a_time ON holodeck.runs (agent, tenant, user_name, session)
      WHERE state = 'running' AND ended IS NULL;
    CREATE UNIQUE INDEX one_per_key ON holodeck.runs (agent, tenant, user_name, wire, repeat_key)
      WHERE repeat_key IS NOT NULL;
    CREATE INDEX runs_open ON holodeck.runs (replica) WHERE ended IS NULL;
    CREATE INDEX runs_ended ON holodeck.runs (agent, ended) WHERE ended IS NOT NULL;
    CREATE INDEX runs_with_key ON holodeck.runs (agent, ended) WHERE repeat_key IS NOT NULL;
    CREATE INDEX runs_of_chain ON holodeck.runs (agent, tenant, user_name, root) WHERE root IS NOT NULL;
    CREATE INDEX runs_of_session ON holodeck.runs (agent, tenant, user_name, session);
    CREATE TABLE holodeck.pieces (                                   -- the copy of the run log, where there is no Valkey
      run bigint NOT NULL REFERENCES holodeck.runs ON DELETE CASCADE, first bigint NOT NULL,
      body bytea NOT NULL, PRIMARY KEY (run, first));
    """,
    """
    CREATE TABLE holodeck.kept_values (                              -- `sessions.values`
      key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,           -- in the order in which they were put
      agent text NOT NULL, tenant text NOT NULL, user_name text NOT NULL,
      kind text NOT NULL, topic text NOT NULL, name text NOT NULL,
      session text,                                                  -- with which it is deleted
      body bytea NOT NULL, expires double precision,                 -- by the database's clock
      UNIQUE (agent, tenant, user_name, kind, topic, name));
    CREATE INDEX kept_values_of_kind ON holodeck.kept_values (agent, tenant, user_name, kind, key);
    CREATE INDEX kept_values_of_session ON holodeck.kept_values (agent, tenant, user_name, session)
      WHERE session IS NOT NULL;
    CREATE INDEX kept_values_expire ON holodeck.kept_values (agent, expires) WHERE expires IS NOT NULL;
    """,
    # The sum of a tenant is read from this index alone. A counter would be one row on which all commits of a tenant
    # wait.
    "CREATE INDEX sessions_of_tenant ON holodeck.sessions (agent, tenant) INCLUDE (size)",
    # Whether a session is as the calling statement has read it: agent, tenant, user, id, key, epoch. A volatile function
    # sees what was committed until it is called; the rest of a statement, until the statement began. At the higher levels
    # of isolation both see the same, so the answer is no.
    """
    CREATE FUNCTION holodeck.is_unchanged(text, text, text, text, bigint, bigint) RETURNS boolean
    LANGUAGE plpgsql VOLATILE AS $$ BEGIN
      RETURN current_setting('transaction_isolation') = 'read committed' AND coalesce((
        SELECT (s.key, s.epoch) IS NOT DISTINCT FROM ($5, $6) FROM holodeck.sessions s
        WHERE s.agent = $1 AND s.tenant = $2 AND s.user_name = $3 AND s.id = $4), $5 IS NULL);
    END $$
    """,
    # Runs whose records are kept for a day only.
    """
    ALTER TABLE holodeck.runs ADD COLUMN without_session boolean;
    CREATE INDEX runs_without_session ON holodeck.runs (agent, ended) WHERE without_session;
    """,
)
