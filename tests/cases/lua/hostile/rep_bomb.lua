-- ends by: script resulting string too large
return ("x"):rep(1 << 33)
