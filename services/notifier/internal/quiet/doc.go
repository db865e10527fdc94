// Package quiet knows when a user is not to be disturbed, by the clock on the user's wall.
package quiet
