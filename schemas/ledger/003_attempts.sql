-- The configuration of each attempt. A resumed run may have another strategy, number of ranks or configuration; the columns of
-- `run` contain the newest. NULL: the attempt is older than these columns.
ALTER TABLE attempt ADD COLUMN strategy TEXT;
ALTER TABLE attempt ADD COLUMN world_size INTEGER;
ALTER TABLE attempt ADD COLUMN argv TEXT;  -- JSON array
ALTER TABLE attempt ADD COLUMN build_id TEXT;
ALTER TABLE attempt ADD COLUMN git TEXT;   -- JSON
ALTER TABLE attempt ADD COLUMN config TEXT REFERENCES config;  -- JSON
