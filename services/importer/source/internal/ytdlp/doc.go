// Package ytdlp gets what is known of a video, and exactly one of its caption tracks, by the program yt-dlp.
//
// It runs the program twice: once for the description of the video in JSON, by which everything is decided, and once for the
// one track that was chosen, for which the program gets a description of its own that names nothing but that track. Whether
// a video has captions is thus never guessed from exit codes or names of files, and a track costs one request.
package ytdlp
