-- What users change in a run after it was recorded, and views that queries of users can rely on.
ALTER TABLE run ADD COLUMN grp TEXT NOT NULL DEFAULT '';  -- the group; empty: none
ALTER TABLE run ADD COLUMN archived REAL;                 -- when; NULL: not archived. Listings leave archived runs out.
ALTER TABLE run ADD COLUMN deleted REAL;                  -- when it was moved to the trash; NULL: it was not
ALTER TABLE run ADD COLUMN monitor TEXT NOT NULL DEFAULT 'val_loss';  -- checkpoint.monitor, if the config has one
-- The class of the failure.
ALTER TABLE run ADD COLUMN failure TEXT GENERATED ALWAYS AS (json_extract(annotations, '$.measured.failure.kind')) VIRTUAL;
UPDATE run SET monitor = ifnull((SELECT json_extract(content, '$.checkpoint.monitor') FROM config WHERE hash = run.config), monitor);

-- The audit trail of edits.
CREATE TABLE change (
  change INTEGER PRIMARY KEY,
  run INTEGER NOT NULL REFERENCES run,
  time REAL NOT NULL,
  who TEXT NOT NULL,   -- user@host
  what TEXT NOT NULL,  -- name, tags, notes, group, archived, ...
  before TEXT,         -- as in the run's row; NULL: unset
  after TEXT
) STRICT;
CREATE INDEX change_by_run ON change (run);

-- The recipe keys that runs of this ledger have. Added when a run begins, so that filters need not read all configs.
CREATE TABLE config_key (
  name TEXT PRIMARY KEY,     -- optimizer.lr
  path TEXT NOT NULL,        -- of json_extract: $.optimizer.lr
  numeric INTEGER NOT NULL   -- 1: a run has a number there
) STRICT, WITHOUT ROWID;
INSERT INTO config_key (name, path, numeric)
  SELECT replace(substr(fullkey, 3), '"', ''), fullkey, max(tree.type IN ('integer', 'real'))
  FROM (SELECT DISTINCT config AS hash FROM run) JOIN config USING (hash), json_tree(config.content) AS tree
  WHERE tree.type NOT IN ('object', 'null') AND instr(fullkey, '[') = 0
  GROUP BY 1;

-- 1: the largest value of the metric is the best one; 0: the smallest.
ALTER TABLE key ADD COLUMN higher_is_better INTEGER GENERATED ALWAYS AS (
  name LIKE '%accuracy%' OR name LIKE '%\_acc' ESCAPE '\' OR name LIKE '%/acc' OR name = 'acc' OR name LIKE '%f1' OR
  name LIKE '%auc' OR name LIKE '%r2' OR name LIKE '%precision' OR name LIKE '%recall' OR name LIKE '%bleu%' OR
  name LIKE '%rouge%' OR name LIKE '%reward%' OR name LIKE '%\_per\_s' ESCAPE '\') VIRTUAL;

-- Views for queries: README.md describes them. Columns keep their names and meanings; later migrations add only at the end.
CREATE VIEW runs AS
  SELECT run.id, run.name, run.grp AS group_name,
    CASE WHEN run.status = 'preempted' AND trial.status = 'pruned' THEN 'pruned' ELSE run.status END AS status,
    run.strategy, run.world_size, run.steps, run.started, run.ended,
    strftime('%Y-%m-%dT%H:%M:%SZ', run.started, 'unixepoch') AS started_at,
    strftime('%Y-%m-%dT%H:%M:%SZ', run.ended, 'unixepoch') AS ended_at,
    (SELECT sum(coalesce(attempt.ended, run.ended, attempt.heartbeat) - attempt.started) FROM attempt
     WHERE attempt.run = run.run) AS seconds,
    loss.value AS final_loss,
    iif(best.run IS NULL, 'loss', run.monitor) AS metric,
    iif(best.run IS NULL, loss.value, best.value) AS metric_value,
    iif(best.run IS NULL, loss.min, iif((SELECT higher_is_better FROM key WHERE key = best.key), best.max, best.min))
      AS best_value,
    run.exit_code, run.failure, run.message, run.tags, run.notes,
    sweep.id AS sweep, trial.number AS trial,
    (SELECT parent.id FROM edge JOIN run AS parent ON parent.run = edge.source WHERE edge.target = run.run LIMIT 1) AS parent,
    json_extract(run.host, '$.hostname') AS host,
    json_extract(run.git, '$.commit') AS git_commit,
    json_extract(run.git, '$.branch') AS git_branch,
    json_extract(run.git, '$.dirty') AS git_dirty,
    run.build_id, run.working_directory, run.folder,
    run.archived IS NOT NULL AS archived, run.deleted IS NOT NULL AS deleted
  FROM run
    LEFT JOIN trial ON trial.run = run.run
    LEFT JOIN sweep ON sweep.sweep = trial.sweep
    LEFT JOIN metric_last AS loss ON loss.run = run.run AND loss.key = (SELECT key FROM key WHERE name = 'loss')
    LEFT JOIN metric_last AS best ON best.run = run.run AND best.key = (SELECT key FROM key WHERE name = run.monitor);

-- metric_last has the metrics of each run, and CROSS JOIN makes SQLite read it first: a query for one metric of all runs
-- searches its points, and does not scan all points.
CREATE VIEW metrics AS
  SELECT run.id AS run, key.name, metric.step, metric.value
  FROM metric_last AS last JOIN run ON run.run = last.run JOIN key ON key.key = last.key
    CROSS JOIN metric ON metric.run = last.run AND metric.key = last.key;

CREATE VIEW last_metrics AS
  SELECT run.id AS run, key.name, last.step, last.value, last.min, last.max,
    iif(key.higher_is_better, last.max, last.min) AS best
  FROM metric_last AS last JOIN run ON run.run = last.run JOIN key ON key.key = last.key;

CREATE VIEW params AS
  SELECT run.id AS run, replace(substr(tree.fullkey, 3), '"', '') AS name, tree.value, tree.type
  FROM run JOIN config ON config.hash = run.config, json_tree(config.content) AS tree
  WHERE tree.type NOT IN ('object', 'null') AND instr(tree.fullkey, '[') = 0;

CREATE VIEW events AS
  SELECT run.id AS run, event.time, event.kind, json_extract(event.fields, '$.step') AS step,
    json_extract(event.fields, '$.message') AS message, event.fields
  FROM event JOIN run ON run.run = event.run;

CREATE VIEW artifacts AS
  SELECT run.id AS run, artifact.time, artifact.kind, artifact.path, json_extract(artifact.fields, '$.step') AS step,
    json_extract(artifact.fields, '$.bytes') AS bytes, artifact.fields
  FROM artifact JOIN run ON run.run = artifact.run;

CREATE VIEW attempts AS
  SELECT run.id AS run, attempt.number, attempt.reason, attempt.from_step, attempt.host, attempt.pid, attempt.started,
    attempt.heartbeat, attempt.ended, attempt.strategy, attempt.world_size, attempt.build_id
  FROM attempt JOIN run ON run.run = attempt.run;

CREATE VIEW edges AS
  SELECT source.id AS source, target.id AS target, edge.kind
  FROM edge JOIN run AS source ON source.run = edge.source JOIN run AS target ON target.run = edge.target;

CREATE VIEW sweeps AS
  SELECT id, name, status, seed, started, ended, seconds, message, host, folder FROM sweep;

CREATE VIEW trials AS
  SELECT sweep.id AS sweep, trial.number, run.id AS run, trial.status, trial.parameters, trial.objective, trial.step,
    trial.reason, trial.message, trial.slot, trial.tries, trial.started, trial.ended
  FROM trial JOIN sweep ON sweep.sweep = trial.sweep LEFT JOIN run ON run.run = trial.run;

CREATE VIEW changes AS
  SELECT run.id AS run, change.time, change.who, change.what, change.before, change.after
  FROM change JOIN run ON run.run = change.run;
