-- self.log('train_loss', loss, sync_dist=True)
return {
  on_train_batch_end = function(ctx) ctx:log("train_loss", ctx.loss, {sync = "mean"}) end,
}
