-- What a resumed run makes again, and who may write. A row with `saved` came after the snapshot of that step: it is
-- dropped when the run goes on from a snapshot of that step or an earlier one. NULL: kept whatever happens.
ALTER TABLE event ADD COLUMN saved INTEGER;
ALTER TABLE artifact ADD COLUMN saved INTEGER;
-- /etc/machine-id of the host: tells apart two machines of one host name. NULL: not known.
ALTER TABLE attempt ADD COLUMN machine TEXT;
ALTER TABLE sweep ADD COLUMN machine TEXT;
