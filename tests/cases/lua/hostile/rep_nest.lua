-- ends by: script resulting string too large
return ("x"):rep(1000):rep(1000):rep(1000)
