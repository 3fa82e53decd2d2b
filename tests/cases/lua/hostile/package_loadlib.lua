-- ends by: script package.loadlib is not available in the sandbox; `trusted = true` in [hooks] opens it
package.loadlib("x", "y")
