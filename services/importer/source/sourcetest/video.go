// Package sourcetest has a stand-in for YouTube, for tests, from which yt-dlp fetches videos as from the real site.
package sourcetest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Reasons for which a video is not playable, in YouTube's words.
const (
	Private  = "Private video"
	Gone     = "Video unavailable"
	BotCheck = "Sign in to confirm you’re not a bot"
)

// Video is a video of a [YouTube].
type Video struct {
	Title, Author, Description string
	// Duration defaults to five minutes.
	Duration time.Duration
	// Live reports whether the video is being broadcast.
	Live bool
	// Reason is the reason for which the video is not playable; empty when it is.
	Reason string
	// Status is the HTTP status of the page and its files. Defaults to 200.
	Status int
	// Stall reports whether the page never arrives.
	Stall bool
	// Tracks are its captions.
	Tracks []Track
}

// Track is a track of captions.
type Track struct {
	// Language is the code of the language: en, pt-BR, iw.
	Language string
	// Automatic reports whether a machine made the captions.
	Automatic bool
	// Body is the content of the file.
	Body string
	// Status is the HTTP status of the file. Defaults to 200.
	Status int
	// Stall reports whether the file never arrives.
	Stall bool
}

// object is JSON.
type object = map[string]any

// player returns YouTube's description of a video.
func (v Video) player(id string) object {
	switch v.Reason {
	case "":
	case Gone:
		return object{"playabilityStatus": object{"status": "ERROR", "reason": v.Reason}}
	default:
		return object{"playabilityStatus": object{"status": "LOGIN_REQUIRED", "reason": v.Reason}}
	}
	length := strconv.Itoa(int(cmp.Or(v.Duration, 5*time.Minute).Seconds()))
	out := object{
		"playabilityStatus": object{"status": "OK", "playableInEmbed": true},
		"videoDetails": object{
			"videoId": id, "title": v.Title, "lengthSeconds": length, "channelId": "UCxxxxxxxxxxxxxxxxxxxxxx", "author": v.Author,
			"shortDescription": v.Description, "isLiveContent": v.Live, "isLive": v.Live, "viewCount": "10",
		},
		"streamingData": object{"formats": []any{object{
			"itag": 18, "url": "https://rr1.googlevideo.com/videoplayback?id=1&itag=18", "bitrate": 100000, "width": 640, "height": 360,
			"mimeType": `video/mp4; codecs="avc1.42001E, mp4a.40.2"`, "qualityLabel": "360p", "approxDurationMs": length + "000",
		}}},
	}
	if len(v.Tracks) > 0 {
		out["captions"] = v.captions(id)
	}
	return out
}

// captions returns the tracks, and the languages into which a machine would translate them.
func (v Video) captions(id string) object {
	tracks := make([]object, 0, len(v.Tracks))
	for i, track := range v.Tracks {
		query := url.Values{"v": {id}, "lang": {track.Language}, "track": {strconv.Itoa(i)}}
		out := object{"vssId": "." + track.Language, "languageCode": track.Language, "isTranslatable": true}
		if track.Automatic {
			query.Set("kind", "asr")
			out["kind"], out["vssId"] = "asr", "a."+track.Language
		}
		out["name"] = object{"simpleText": track.Language}
		out["baseUrl"] = "https://www.youtube.com/api/timedtext?" + query.Encode()
		tracks = append(tracks, out)
	}
	languages := []string{"af", "de", "en", "fr", "zh-Hans"}
	translations := make([]object, 0, len(languages))
	for _, code := range languages {
		translations = append(translations, object{"languageCode": code, "languageName": object{"simpleText": code}})
	}
	return object{"playerCaptionsTracklistRenderer": object{
		"captionTracks": tracks, "audioTracks": []any{object{"captionTrackIndices": []int{0}}}, "translationLanguages": translations,
	}}
}

const page = `<html><head><title>x</title><script>ytcfg.set({"INNERTUBE_API_KEY":"key","INNERTUBE_CONTEXT":{"client":{"clientName":"WEB",` +
	`"clientVersion":"2.2024","hl":"en"}},"INNERTUBE_CONTEXT_CLIENT_NAME":1,"VISITOR_DATA":"abc"});</script></head><body><script>` +
	`var ytInitialPlayerResponse = %s;</script><script>var ytInitialData = %s;</script></body></html>`

// nothingBeside stands for the rest of a page: comments, other videos.
const nothingBeside = `{"contents":{"twoColumnWatchNextResults":{"results":{"results":{"contents":[]}}}}}`

func (y *YouTube) site() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /watch", func(w http.ResponseWriter, r *http.Request) {
		id := r.URL.Query().Get("v")
		if video := y.count(y.looks, id); begin(w, r, video.Status, video.Stall) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			write(w, fmt.Appendf(nil, page, encode(y.player(id)), nothingBeside))
		}
	})
	mux.HandleFunc("POST /youtubei/v1/player", func(w http.ResponseWriter, r *http.Request) {
		var query struct {
			VideoID string `json:"videoId"`
		}
		if err := json.NewDecoder(r.Body).Decode(&query); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if video := y.count(map[string]int{}, query.VideoID); begin(w, r, video.Status, video.Stall) {
			w.Header().Set("Content-Type", "application/json")
			write(w, encode(y.player(query.VideoID)))
		}
	})
	mux.HandleFunc("POST /youtubei/v1/next", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		write(w, []byte(nothingBeside))
	})
	mux.HandleFunc("GET /iframe_api", func(w http.ResponseWriter, _ *http.Request) {
		write(w, []byte(`var scriptUrl = 'https:\/\/www.youtube.com\/s\/player\/00000000\/www-widgetapi.js';`))
	})
	mux.HandleFunc("GET /api/timedtext", func(w http.ResponseWriter, r *http.Request) {
		video := y.count(y.fetches, r.URL.Query().Get("v"))
		i, err := strconv.Atoi(r.URL.Query().Get("track"))
		if err != nil || i < 0 || i >= len(video.Tracks) {
			http.NotFound(w, r)
			return
		}
		if track := video.Tracks[i]; begin(w, r, track.Status, track.Stall) {
			w.Header().Set("Content-Type", "text/vtt; charset=UTF-8")
			write(w, []byte(track.Body))
		}
	})
	return mux
}

// player returns the site's description of a video. An unknown video counts as removed.
func (y *YouTube) player(id string) object {
	y.mu.Lock()
	defer y.mu.Unlock()
	if video, ok := y.videos[id]; ok {
		return video.player(id)
	}
	return Video{Reason: Gone}.player(id)
}

// begin begins an answer, and reports whether its body is to be written.
func begin(w http.ResponseWriter, r *http.Request, status int, stall bool) bool {
	if stall {
		<-r.Context().Done()
		return false
	}
	if status != 0 && status != http.StatusOK {
		w.WriteHeader(status)
		return false
	}
	return true
}

func write(w http.ResponseWriter, data []byte) {
	_, _ = w.Write(data) //nolint:gosec // the client has gone, and the data is a test's
}

func encode(value any) []byte {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err) // of strings and numbers alone
	}
	return data
}
