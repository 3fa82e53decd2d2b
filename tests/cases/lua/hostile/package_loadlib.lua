-- ends by: script package.loadlib is not available in the sandbox; `trusted = true` in [hooks] allows it
package.loadlib("x", "y")
