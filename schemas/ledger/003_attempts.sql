-- What each attempt ran: a resumed run may go on under another strategy, number of ranks or configuration, and the run's
-- own columns tell the newest. NULL: an attempt from before this was kept.
ALTER TABLE attempt ADD COLUMN strategy TEXT;
ALTER TABLE attempt ADD COLUMN world_size INTEGER;
ALTER TABLE attempt ADD COLUMN argv TEXT;  -- JSON array
ALTER TABLE attempt ADD COLUMN build_id TEXT;
ALTER TABLE attempt ADD COLUMN git TEXT;   -- JSON
ALTER TABLE attempt ADD COLUMN config TEXT REFERENCES config;  -- JSON
