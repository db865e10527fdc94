// Package importer turns recipe videos and pages into recipes.
package importer
