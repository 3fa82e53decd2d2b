return {
  model = {dim = function() return 8 end},
}
