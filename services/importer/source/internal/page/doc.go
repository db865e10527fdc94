// Package page reads web pages: the recipe that a page holds as schema.org data, in JSON-LD or microdata, and the caption
// tracks of its videos.
package page
