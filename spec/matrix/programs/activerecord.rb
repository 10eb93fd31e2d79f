# frozen_string_literal: true

require "logger"
require "active_record"

ActiveRecord::Base.establish_connection(adapter: "sqlite3", database: ":memory:")
ActiveRecord::Schema.verbose = false
ActiveRecord::Schema.define do
  create_table(:authors) { |t| t.string :name }
  create_table(:books) do |t|
    t.string :title
    t.integer :author_id
  end
end

class Author < ActiveRecord::Base
  has_many :books
  validates :name, presence: true
end

class Book < ActiveRecord::Base
  belongs_to :author
end

Author.transaction do
  100.times { |i| Author.create!(name: "author #{i}").books.create!(Array.new(5) { |n| { title: "book #{i}.#{n}" } }) }
end
puts Author.count, Book.count, Author.includes(:books).map { |author| author.books.size }.sum
puts Book.joins(:author).where(authors: { name: "author 7" }).order(:title).pluck(:title)
puts Author.new.tap(&:valid?).errors.full_messages
Book.where("title like ?", "%.3").destroy_all
puts Book.count, Author.find_by(name: "author 3").books.map(&:title).inspect
