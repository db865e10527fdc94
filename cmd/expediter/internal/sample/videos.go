package sample

import (
	"embed"
	"io/fs"
)

//go:embed videos
var videos embed.FS

// Videos returns the files of a site with recipes: captions of videos, a page with a recipe as data, and files in which there
// is no recipe. All were written for this sample.
func Videos() fs.FS {
	sub, err := fs.Sub(videos, "videos")
	if err != nil {
		panic(err) // the folder is part of the program
	}
	return sub
}
