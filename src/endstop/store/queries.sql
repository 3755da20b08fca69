-- Every statement of the SQLite journal, named. `sql.py` reads this file: a block opens with
-- `-- name: xyz`, the comment below it says why the statement is as it is.


-- name: application_id
-- Marks the file as ours, so that another program's database is refused and never altered.
PRAGMA application_id

-- name: mark_file
-- "endS": read back through `application_id`.
PRAGMA application_id = 1701733459

-- name: count_tables
-- Whether an unmarked file is empty, or somebody else's.
SELECT count(*) FROM sqlite_master

-- name: wal
-- Readers never block the writer, and a commit appends to one file.
PRAGMA journal_mode = WAL

-- name: survive_process
-- A commit reaches the operating system: it survives the death of this process.
PRAGMA synchronous = NORMAL

-- name: survive_machine
-- A commit is flushed to stable storage: it survives the death of the machine. WAL is one file, so
-- this flush takes along what was committed before it.
PRAGMA synchronous = FULL

-- name: full_flush
-- On macOS a plain fsync leaves data in the drive's cache; elsewhere this changes nothing.
PRAGMA fullfsync = ON

-- name: begin_read
-- Several questions, one snapshot.
BEGIN

-- name: begin_write
-- Takes the write lock at once: a transaction that began by reading could not wait for it later.
BEGIN IMMEDIATE

-- name: commit
-- A group becomes visible to everybody here, all of it or nothing.
COMMIT

-- name: rollback
-- Nothing of a group that failed is kept.
ROLLBACK

-- name: savepoint
-- One per append, where a group is recorded piece by piece: what is refused takes only itself back.
SAVEPOINT one_append

-- name: release
-- An append that fits becomes part of the group.
RELEASE one_append

-- name: rollback_to
-- An append that does not fit leaves nothing behind.
ROLLBACK TO one_append


-- name: create_meta
-- The version of schema and bodies; a file of a newer one is refused with a clear error.
CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID

-- name: create_runs
-- One row per run, for questions that must not read its events: which exist, which are open, and
-- who drives them. With a rowid, because its order is the order of opening. `owner` is null where
-- the driver has let go.
CREATE TABLE runs (
    run         TEXT NOT NULL UNIQUE,
    opened_at   REAL NOT NULL,
    ended_at    REAL,
    outcome     TEXT,
    owner       TEXT,
    parent_call TEXT,
    after       TEXT,
    id          INTEGER PRIMARY KEY
)

-- name: create_events
-- The journal itself. The key is the fence: of two drivers that both write number n of a run, the
-- second fails here (law 3 one-ending).
CREATE TABLE events (
    run  TEXT NOT NULL,
    seq  INTEGER NOT NULL,
    at_s REAL NOT NULL,
    kind TEXT NOT NULL,
    call TEXT,
    body TEXT NOT NULL,
    PRIMARY KEY (run, seq)
) WITHOUT ROWID

-- name: create_blobs
-- Large results, beside the journal; the body of their event holds the digest. Same text, one row.
CREATE TABLE blobs (
    digest TEXT PRIMARY KEY,
    data   TEXT NOT NULL
)

-- name: one_ending_per_call
-- Law 3 one-ending, kept by the file itself, whatever program writes to it.
CREATE UNIQUE INDEX one_ending_per_call
    ON events (run, call) WHERE kind = 'call_settled'

-- name: one_ending_per_run
-- The same for runs.
CREATE UNIQUE INDEX one_ending_per_run
    ON events (run) WHERE kind = 'run_ended'

-- name: open_runs
-- Few of many runs are open: finding the orphans must not scan those that are over.
CREATE INDEX open_runs ON runs (id) WHERE ended_at IS NULL

-- name: create_requests
-- What other processes ask of the driver of a run. `asker` and `taken_by` are owners as in `runs`;
-- a row without an answer is open, whoever has taken it.
CREATE TABLE requests (
    id          INTEGER PRIMARY KEY,
    run         TEXT NOT NULL,
    target      TEXT NOT NULL,
    kind        TEXT NOT NULL,
    body        TEXT NOT NULL,
    by          TEXT NOT NULL,
    at_s        REAL NOT NULL,
    asker       TEXT NOT NULL,
    taken_by    TEXT,
    answer      TEXT,
    answered_at REAL
)

-- name: create_open_requests
-- The few open requests are found among any number of old ones.
CREATE INDEX open_requests ON requests (run) WHERE answer IS NULL

-- name: create_shelf
-- Small records that are no run's history, overwritten in place; `value` is a JSON object as text.
CREATE TABLE shelf (
    space TEXT NOT NULL,
    key   TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (space, key)
) WITHOUT ROWID

-- name: create_labels
-- What runs may be found by, such as whose they are. The key answers the question itself.
CREATE TABLE labels (
    name  TEXT NOT NULL,
    value TEXT NOT NULL,
    run   TEXT NOT NULL,
    PRIMARY KEY (name, value, run)
) WITHOUT ROWID

-- name: set_meta
-- In the transaction that makes the tables: no journal is ever without its versions.
INSERT INTO meta (name, value) VALUES (?, ?)

-- name: change_meta
-- In the transaction that adds what the newer version needs.
UPDATE meta SET value = ? WHERE name = ?

-- name: get_meta
-- Read at every opening, before anything else is believed.
SELECT value FROM meta WHERE name = ?


-- name: insert_events
-- The one group of placeholders is repeated to the next power of two and the unused rest bound to
-- null. One statement for a whole group: each step of a statement lets go of Python's lock and must
-- win it back, which beside a busy event loop costs milliseconds, so rows one by one would crawl.
INSERT INTO events (run, seq, at_s, kind, call, body)
SELECT * FROM (VALUES (?, ?, ?, ?, ?, ?)) WHERE column1 IS NOT NULL

-- name: insert_run
-- Ignored where the row exists: then the numbers of the events decide who was first.
INSERT OR IGNORE INTO runs (run, opened_at, owner, parent_call, after) VALUES (?, ?, ?, ?, ?)

-- name: insert_label
-- Ignored where the row exists, as the run's own is.
INSERT OR IGNORE INTO labels (name, value, run) VALUES (?, ?, ?)

-- name: end_run
-- A run that is over is driven by nobody.
UPDATE runs SET ended_at = ?, outcome = ?, owner = NULL WHERE run = ?

-- name: insert_blob
-- Ignored where the row exists: the digest says that it is the same text.
INSERT OR IGNORE INTO blobs (digest, data) VALUES (?, ?)

-- name: last_seq
-- Where a run stands, for the first append of this process to it.
SELECT coalesce(max(seq), 0) FROM events WHERE run = ?


-- name: read_events
-- By pages, so that no reader keeps a snapshot open and the write-ahead log can be folded back.
SELECT seq, at_s, kind, call, body FROM events WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?

-- name: read_blob
-- Only when an event that needs it is read: listing a run does not load what is large.
SELECT data FROM blobs WHERE digest = ?

-- name: list_runs
-- `id` counts in the order of opening, which a clock that is set back would not.
SELECT run FROM runs ORDER BY id

-- name: describe_runs
-- For people who look: everything that is known of a run without reading its events.
SELECT run, opened_at, ended_at, outcome, owner FROM runs ORDER BY id

-- name: newest_runs
-- Every run has all of no labels.
SELECT run FROM runs ORDER BY id DESC

-- name: count_labelled
-- Which of several labels is rare: counting further than this would cost more than it saves.
SELECT count(*) FROM (SELECT 1 FROM labels WHERE name = ? AND value = ? LIMIT 1000)

-- name: list_labelled
-- Found by one label; the others, a JSON object, are looked up for each run that has it.
SELECT runs.run FROM labels JOIN runs ON runs.run = labels.run
WHERE labels.name = ? AND labels.value = ? AND NOT EXISTS (
    SELECT 1 FROM json_each(?) AS wanted WHERE NOT EXISTS (
        SELECT 1 FROM labels AS other
        WHERE other.name = wanted.key AND other.value = wanted.value AND other.run = runs.run
    )
)
ORDER BY runs.id DESC

-- name: has_labels
-- A file of an older schema that is only read has no labels, and is not given any.
SELECT 1 FROM sqlite_master WHERE name = 'labels'

-- name: last_at
-- The last step down the key of the events.
SELECT at_s FROM events WHERE run = ? ORDER BY seq DESC LIMIT 1

-- name: list_children
-- A call's id begins with its run's and a slash, which no run's id contains.
SELECT run FROM runs WHERE substr(parent_call, 1, length(?)) = ? ORDER BY id

-- name: list_open
-- Whether an owner lives is for this machine to say, not for SQL.
SELECT run, owner FROM runs WHERE ended_at IS NULL ORDER BY id

-- name: get_owner
-- No row where the run is unknown or over: neither can be adopted.
SELECT owner FROM runs WHERE run = ? AND ended_at IS NULL

-- name: adopt_run
-- Compare and set: of several processes that saw the same dead owner, one wins (law 16
-- survives-restart). IS, because the owner may be null.
UPDATE runs SET owner = ? WHERE run = ? AND ended_at IS NULL AND owner IS ?

-- name: release_run
-- One run that is not driven any more, while its journal stays open: only its owner lets go of it.
UPDATE runs SET owner = NULL WHERE run = ? AND ended_at IS NULL AND owner = ?

-- name: let_go
-- At close: what this journal still drove may be adopted, also by this process.
UPDATE runs SET owner = NULL WHERE ended_at IS NULL AND owner = ?

-- name: count_taken
-- Each driver compares this number with the one it saw, and looks for its runs where it differs.
INSERT INTO meta (name, value) VALUES ('taken', '1')
ON CONFLICT (name) DO UPDATE SET value = CAST(value AS INTEGER) + 1


-- name: data_version
-- Differs from its last value when another connection has committed; reads shared memory only.
PRAGMA data_version

-- name: grown_runs
-- For whoever follows runs: an object of the last number that is known of each, and one step down
-- the key for each of them.
SELECT known.key FROM json_each(?) AS known
WHERE EXISTS (SELECT 1 FROM events WHERE run = known.key AND seq > known.value)

-- name: get_run
-- Who drives it and whether it is over, in the transaction that acts on it.
SELECT owner, ended_at FROM runs WHERE run = ?

-- name: post_request
-- The run is known to be open in the same transaction.
INSERT INTO requests (run, target, kind, body, by, at_s, asker) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: open_requests
-- For the driver: what it has not taken yet of what is asked about its runs, in the order of asking.
SELECT requests.id, requests.run, target, kind, body, by, at_s
FROM requests JOIN runs ON runs.run = requests.run
WHERE requests.answer IS NULL AND runs.owner = ? AND requests.taken_by IS NOT ?
ORDER BY requests.id

-- name: take_request
-- So that a request is handed out once to each driver; a later driver is handed it again.
UPDATE requests SET taken_by = ? WHERE id = ? AND answer IS NULL

-- name: answer_request
-- Compare and set: one answer, by the driver or by whoever gives up waiting for it.
UPDATE requests SET answer = ?, answered_at = ? WHERE id = ? AND answer IS NULL

-- name: withdraw_request
-- Compare and set: what a driver has taken may be happening already, and is not called back.
UPDATE requests SET answer = ?, answered_at = ?
WHERE id = ? AND answer IS NULL AND taken_by IS NULL

-- name: get_answer
-- For whoever asked.
SELECT answer FROM requests WHERE id = ?

-- name: get_asker
-- Whose bell to ring when the answer is there.
SELECT asker FROM requests WHERE id = ?

-- name: has_requests
-- A file of the first schema that is only read has no inbox, and is not given one.
SELECT 1 FROM sqlite_master WHERE name = 'requests'

-- name: list_requests
-- For people who look: what was asked of a run and is not answered, driven or not.
SELECT id, run, target, kind, body, by, at_s FROM requests
WHERE run = ? AND answer IS NULL ORDER BY id


-- name: get_record
-- Also inside the transaction that compares and sets.
SELECT value FROM shelf WHERE space = ? AND key = ?

-- name: list_records
-- A range of the key, so that listing few of many records reads few. `prefix` is the lower bound,
-- the fourth value the upper one.
SELECT key, value FROM shelf
WHERE space = ? AND key >= ? AND key > ? AND key < ? ORDER BY key LIMIT ?

-- name: change_record
-- Says by its count whether there was one: only a new record is counted against the bound.
UPDATE shelf SET value = ? WHERE space = ? AND key = ?

-- name: count_records
-- The bound of a space, asked only when a record is added.
SELECT count(*) FROM shelf WHERE space = ?

-- name: insert_record
-- The key is known to be free in the same transaction.
INSERT INTO shelf (space, key, value) VALUES (?, ?, ?)

-- name: delete_record
-- Its count says whether there was one.
DELETE FROM shelf WHERE space = ? AND key = ?
