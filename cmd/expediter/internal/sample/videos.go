package sample

import (
	"embed"
	"io/fs"
)

//go:embed videos
var videos embed.FS

// Videos are the files of a site with recipes: captions of videos, one page with a recipe as data, and some that are no
// use. All were written for this sample.
func Videos() fs.FS {
	sub, err := fs.Sub(videos, "videos")
	if err != nil {
		panic(err) // the folder is part of the program
	}
	return sub
}
