local function helper(t)
  return t.x.y
end
helper({})
return {}
