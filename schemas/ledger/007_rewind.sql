-- Rows that a resumed run writes again. A row with `saved` was written after the snapshot of that step. It is deleted when the
-- run continues from a snapshot of that step or an earlier one. NULL: the row is kept; checkpoints are deleted by their step.
ALTER TABLE event ADD COLUMN saved INTEGER;
ALTER TABLE artifact ADD COLUMN saved INTEGER;
-- /etc/machine-id of the host: distinguishes machines with the same host name. NULL: not known.
ALTER TABLE attempt ADD COLUMN machine TEXT;
ALTER TABLE sweep ADD COLUMN machine TEXT;
